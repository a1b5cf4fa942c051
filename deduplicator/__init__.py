"""Stage two: intermediate topic → decide → unwrap → destination topic, in transactions.

In the order in which a record passes:

    intermediate_consumer.py
                            batches; partitions.py: the partitions that the group has assigned;
                            group_metadata.py: what a member commits with;
                            position_errors.py: records that are gone; leader_change.py: whether a
                            new leader can have lost some; intermediate_watch.py: whether the topic
                            was recreated; purge.py: deletes the committed ones
    rule.py                 which records are new (pure)
    read_up_to_advance.py   moves the frontier over source offsets that have no record (pure)
    unwrap.py               from an intermediate record to the source's record
    record_filter.py        filter.function; provenance.py: the header against copies that go round
    partitioner.py          which destination partition, where it is not the source's number
    destination.py          writes a record to its partition; own_destination_writer.py: by a class
                            of the user's (own_destination.py); stored_destination.py: what
                            destinations outside of Kafka share
    transactions/           one producer, and what is certain after each failure; its lifecycle;
                            two producers in turn
    loop.py                 one line per step
    round_decisions.py      what a round has decided for a partition; round_output.py: what it
                            writes
    frontiers/              a partition's frontier when it is assigned: read, created, or refused;
                            where frontiers are stored
    tables/                 PostgreSQL as the destination, and the frontiers in it
    destination_factory.py  builds the destination that the settings name
    frontier_check.py       compares the frontier with the destination's records;
                            destination_watch.py: asks again while a worker runs
    topic_discovery.py      topics that appear later
    join_timeout.py         stops a worker that the group silently does not accept
    user_call_timeout.py    a timeout for each call of a user's function
    gc_control.py           no automatic garbage collection inside the loop
    worker.py               the process

The same three hops without a Python object for each record, where records go one to one to Kafka:

    compiled_path.c         the rule, unwrapping and writing, in C; compiled_library.py loads it
    compiled_queue.py       whether it is used, and the queue with the fetched messages
    compiled_batch.py       a batch of fetched messages, and the rule applied to it;
                            compiled_message.py: one of them as a Python object, where one is
                            needed
"""
