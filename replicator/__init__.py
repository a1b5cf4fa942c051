"""Stage one: source topic → envelopes → intermediate topic, by Spark Structured Streaming. The only
place that imports pyspark.

In the order in which a record passes:

    source.py              read the source from given offsets
    sql_filter.py          add a column that says whether `filter.sql` selects the record
    spark/sink/            the sink, in Java: collect the records of a partition in envelopes, and
                           write these to the partition with the same number
    sink_options.py   what the sink writes where; refused_records.py: what it cannot write
    query.py               these as one query

Beside the path:

    stage.py               the process: plan, run, watch, repeat
    runs/                  where a run begins, and when it ends
    spark/                 the JVM: its session, options, jars and class archive; executors
"""
