"""Stage two: intermediate topic → decide → unwrap → destination topic, in transactions.

In the order in which a record passes:

    intermediate.py  the consumer: batches, purge; partitions.py: what its group has assigned
    rule.py          which records are new (pure)
    invisible.py     moving the frontier over what the source has nothing of (pure)
    unwrap.py        from an intermediate record to the source's record
    spread.py        which destination partition, where it is not the source's number
    destination.py   writing it to its partition; postgresql.py: as rows (rows.py) of a table
    transaction.py   two producers in turn; what is certain after each failure
    loop.py          one line per step
    start.py         a partition's frontier when it is assigned: read, made, or refused
    frontier_store.py        who has the frontiers and the records; table_frontier_store.py: a database
    destinations.py  which destination the settings name
    check.py         the frontier held against what the destination really has
    follow.py        topics that appear later
    joined.py        a group that does not take the worker in, and nobody says so
    worker.py        the process
"""
