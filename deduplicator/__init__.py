"""Stage two: intermediate topic → decide → unwrap → destination topic, in transactions.

In the order in which a record passes:

    intermediate.py         the consumer: batches, purge; partitions.py: the partitions that the
                            group has assigned
    rule.py                 which records are new (pure)
    frontier_advance.py     moves the frontier over source offsets that have no record (pure)
    unwrap.py               from an intermediate record to the source's record
    record_filter.py        filter.function; provenance.py: the header against copies that go round
    partitioner.py          which destination partition, where it is not the source's number
    destination.py          writes a record to its partition; postgresql.py: as rows (rows.py) of a
                            table; own_destination.py: by a class of the user's
    transaction.py          two producers in turn; what is certain after each failure
    loop.py                 one line per step
    start.py                a partition's frontier when it is assigned: read, created, or refused
    frontier_store.py       where frontiers are stored; table_frontier_store.py: in a database
    destination_factory.py  builds the destination that the settings name
    destination_check.py    compares the frontier with the destination's records
    topic_discovery.py      topics that appear later
    join_timeout.py         stops a worker that the group silently does not accept
    worker.py               the process
"""
