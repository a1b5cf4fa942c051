"""Real faults on real brokers: `make faults`.

A story injects one kind of fault into a service that copies a steady load, and proves that the
fault happened. The rest is the same for all stories: the load ends, the copy must become exact, and
one judge, which imports no code of the service, reads both topics.

    load.py      writes to the source continuously: records without a transaction, and transactions,
                 some of which abort
    run.py       one story, one seed: start, inject the fault, judge
    stories/     the faults, one module for each component that fails
    proxy.py     a TCP proxy that parses Kafka's request headers, for faults of connections
    testbed.py   the brokers of a story
    report.py    docs/faults.md and the file of results beside it
    __main__.py  the campaign
"""
