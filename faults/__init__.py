"""Real faults on real brokers: `make faults`.

A story does one kind of harm to a service that copies a steady load, and proves that the harm was done. What follows is the same for
all: the load ends, the copy has to become exact, and one judge that knows nothing of the service's code reads both topics.

    load.py      writes to the source all the time: plain records, and transactions of which some are aborted
    run.py       one story, one seed: start, harm, judge
    stories/     what is done to the service, one module for each thing that is harmed
    proxy.py     a TCP proxy that understands Kafka's request headers, for harm to connections
    stand.py     the brokers that a story is given
    report.py    docs/faults.md from the results of a campaign
    __main__.py  the campaign
"""
