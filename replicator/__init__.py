"""Stage one: source topic → wrap → intermediate topic, by Spark Structured Streaming. The only place that imports pyspark.

In the order in which a record passes:

    source.py        reading the source from given offsets
    wrap.py          key, value and headers untouched, one header more
    intermediate.py  writing to the partition of the same number
    run.py           a run: these three as one query, and the table of a run's life
    plan.py          where the next run begins
    source_selection.py  which cluster it copies from, and whether it may
    history.py       whether it still has the last records that were copied
    invisible.py     writing down how far the source has nothing to copy
    tail_comparison.py   whether that cluster's records are those that were copied
    health.py        the other candidates while a run lives
    watch.py         live positions while a run lives, and the reasons to end it
    session.py       the JVM; archive.py its classes, mapped instead of read; jvm.py its options
    masters.py       where the tasks run; executor.py an executor in a pod
    stage.py         the process: plan, run, watch, again
"""
