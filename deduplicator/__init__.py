"""Stage two: intermediate topic → decide → unwrap → destination topic, in transactions.

In the order in which an envelope and its records pass:

    loop.py                 a round: one line per step
    partition.py            one partition while this worker owns it: its state, and its part of a
                            round; partitions.py: those that the group has assigned
    intermediate_consumer.py
                            consumes envelopes; group_metadata.py: what a member commits with;
                            purge.py: deletes the committed ones
    round_input.py          consumes and decides what one transaction writes; round_decisions.py:
                            what is decided for one partition
    rule.py                 which envelopes are new (pure)
    unwrap.py               from an envelope to the source's records, where they are needed one by
                            one
    record_filter.py        filter.function; provenance.py: the header against copies that go round
    partitioner.py          which destination partition, where it is not the source's number
    kafka_destination.py    writes records to their partition; compiled_path.c: the records of a
                            whole envelope, called by compiled_path.py; refused_record.py: which of
                            them the brokers refuse
    destination.py          what the loop asks of a destination; stored_destination.py: one outside
                            of Kafka, by the interface of own_destination.py; postgresql/: a class
                            with that interface
    transactions/           one producer, and what is certain after each failure; its lifecycle;
                            two producers in turn
    started_commit.py       counts what is committed
    frontiers/              a partition's frontier when it is assigned: read and compared with the
                            destination, created, or refused; where frontiers are stored
    destination_factory.py  builds the destination that the settings name; destination_watch.py:
                            looks for lost records while a worker runs
    topic_discovery.py      topics that appear later
    same_name_worker.py     names another process that has this worker's name
    user_call_timeout.py    a timeout for each call of a user's function
    gc_control.py           no automatic garbage collection inside the loop
    worker.py               the process
"""
