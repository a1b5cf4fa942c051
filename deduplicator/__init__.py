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
    destination.py          writes a record to its partition; postgresql.py: as rows (rows.py) of a
                            table; own_destination_writer.py: by a class of the user's
                            (own_destination.py)
    transaction.py          one producer, and what is certain after each failure
                            (transaction_failures.py); transaction_states.py: its lifecycle;
                            producer_pair.py: two in turn
    loop.py                 one line per step; round_output.py: what a round writes;
                            waiting_partitions.py: partitions that are not started yet
    start.py                a partition's frontier when it is assigned: read, created
                            (first_frontiers.py, start_offsets.py), or refused
    frontier_store.py       where frontiers are stored; group_commits.py: in the group's commits;
                            table_frontier_store.py: in a database (frontier_rows.py, last_rows.py,
                            table_creation.py); own_frontier_store.py: where a user's class does
    destination_factory.py  builds the destination that the settings name
    destination_check.py    compares the frontier with the destination's records
    topic_discovery.py      topics that appear later
    join_timeout.py         stops a worker that the group silently does not accept
    worker.py               the process
"""
