"""Stage two: intermediate topic → decide → unwrap → destination topic, in transactions.

In the order in which a record passes:

    intermediate.py         the consumer: batches; partitions.py: the partitions that the group has
                            assigned; group_membership.py: what a member commits with;
                            missing_positions.py: records that are gone; purge.py: deletes the
                            committed ones
    rule.py                 which records are new (pure)
    frontier_advance.py     moves the frontier over source offsets that have no record (pure)
    unwrap.py               from an intermediate record to the source's record
    record_filter.py        filter.function; provenance.py: the header against copies that go round
    partitioner.py          which destination partition, where it is not the source's number
    destination.py          writes a record to its partition; own_destination_writer.py: by a class
                            of the user's (own_destination.py)
    transactions/           one producer, and what is certain after each failure; its lifecycle;
                            two producers in turn
    loop.py                 one line per step; round_output.py: what a round writes
    frontiers/              a partition's frontier when it is assigned: read, created, or refused;
                            where frontiers are stored
    tables/                 PostgreSQL as the destination, and the frontiers in it
    destination_factory.py  builds the destination that the settings name
    destination_check.py    compares the frontier with the destination's records
    topic_discovery.py      topics that appear later
    join_timeout.py         stops a worker that the group silently does not accept
    worker.py               the process
"""
