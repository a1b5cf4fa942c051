"""Stage one: source topic → envelopes → intermediate topic, by Spark Structured Streaming. The only
place that imports pyspark.

In the order in which a record passes:

    source.py              read the source from given offsets
    sql_filter.py          add a column that says whether `filter.sql` selects the record
    spark/sink/            the sink, in Java: collect the records of a partition in envelopes, and
                           write these to the partition with the same number
    intermediate_sink.py   what the sink writes where; refused_records.py: what it cannot write
    query.py               these as one query

What runs the queries:

    run.py                 a run, and the table of its states
    run_planner.py         where the next run begins; run_epochs.py: its epoch
    source_checks.py       whether a source can be copied from where the frontiers are;
                           last_record_check.py, tail_comparison.py: whether it has the last
                           copied records; `common.source_pool`: which of several is tried
    run_watch.py           the reasons to end a run while it lives, from snapshots of both clusters
                           (cluster_snapshot.py, of each partition partition_snapshot.py);
                           losses_during_run.py, run_metrics.py
    empty_envelopes.py     write how far the source has nothing to copy, and that a run begins
    spark/                 the JVM: its session, options, jars and class archive; executors
    clients.py             the clients that ask both clusters; Spark's own carry the records
    stage.py               the process: plan, run, watch, repeat; stop_at_end.py: until everything
                           is copied
"""
