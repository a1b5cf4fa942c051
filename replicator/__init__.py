"""Stage one: source topic → wrap → intermediate topic, by Spark Structured Streaming. The only
place that imports pyspark.

In the order in which a record passes:

    source.py              read the source from given offsets
    sql_filter.py          drop the records that `filter.sql` does not select;
                           check_filter_sql.py: whether Spark understands it, for `reo check`
    wrap.py                keep key, value and headers as they are, add one header
    intermediate_sink.py   write to the partition with the same number

What runs these as one query:

    run.py                 a run, and the table of its states
    run_planner.py         where the next run begins
    source_checks.py       whether a source can be copied from where the frontiers are;
                           last_record_check.py: whether it has the last copied records
    candidates/            which of several source clusters the next run copies from
    run_watch.py           positions while a run lives, and the reasons to end it, from what both
                           clusters answer (cluster_snapshot.py): intermediate_holes.py,
                           losses_during_run.py, open_transactions.py
    read_up_to_writer.py   record on the intermediate topic how far the source has nothing to copy
    spark/                 the JVM: its session, options, jars and class archive; executors
    clients.py             the clients that ask both clusters; Spark's own carry the records
    stage.py               the process: plan, run, watch, repeat; stop_at_end.py: until everything
                           is copied
"""
