"""Runs the service's own processes in one thread, on a virtual clock, against a simulated Kafka; every decision comes from one seed.

In the order in which a schedule is made and judged:

    plan.py      the sizes, the settings and the faults of a schedule, from its seed
    run.py       one schedule, to its verdict; reducing one that fails
    schedule.py  who runs when: processes as greenlets, the virtual clock; machine.py: what the service asks of its machine
    system.py    two clusters, the service's processes and their restarts, the writers at the source; candidates.py: several identical sources
    query.py     stage one's Spark query: batches, tasks, producer batches, and what goes wrong with them
    kafka/       the clusters, and confluent-kafka's clients (compared with real brokers: tests/test_simulated_kafka.py)
    faults.py    what a fault does; harms.py: to clusters and topics, and which end of the service that allows or demands
    operator.py  deletes what the group has committed, and recovers it
    filtered.py  what filters let pass
    judge.py     what has to be true of the copy after every step; reports.py: and of what the service says of itself; logs.py: reading what no process can
    planted.py   known wrongs, to see that they are found

Not simulated, so nothing is found there: commands other than `reo recover`, mappings and several topics, PostgreSQL,
`source.start` with offsets or a time, the supervisor itself (its restarts are), security and quotas. A destination that loses its
newest records together with another fault may go on: other records can come to their offsets before anybody looks.
"""
