"""Stage one: source topic → wrap → intermediate topic, by Spark Structured Streaming. The only
place that imports pyspark.

In the order in which a record passes:

    source.py              read the source from given offsets
    sql_filter.py          drop the records that `filter.sql` does not select
    wrap.py                keep key, value and headers as they are, add one header
    intermediate.py        write to the partition with the same number

What runs these as one query:

    run.py                 a run, and the table of its states
    plan.py                where the next run begins
    source_selection.py    which cluster the next run copies from; source_checks.py: whether it may
    source_history.py      whether that cluster still has the last records that were copied
    tail_comparison.py     whether its records are the copy's records
    candidate_health.py    the other source candidates while a run lives
    watch.py               positions while a run lives, and the reasons to end it, from what both
                           clusters answer (sample.py): open_holes.py, open_transactions.py,
                           source_losses.py
    read_up_to_writer.py   record on the intermediate topic how far the source has nothing to copy
    session.py             the JVM; connector.py its jars; class_archive.py its class archive;
                           jvm.py its options; memory.py its heap
    spark_master.py        where the tasks run; executor.py an executor in a pod
    stage.py               the process: plan, run, watch, repeat; completion.py: until everything
                           is copied
"""
