"""What `reo check` looks at before anything runs, a module for each kind of fact; none of them changes anything.

In the order of the answer:

    clusters.py     both clusters answer; what their brokers can do; how the destination's are set
    topics.py       the three topics of each route: cycles, partitions, what would be made
    topic_settings.py  and how they are set: sizes, retention, timestamps, replicas
    database.py     where copies are tables: the database, its user's rights, the tables
    frontier.py     how far the copy is, and whether a start would take it
    findings.py     one line of the answer, and how all of them are said
"""
