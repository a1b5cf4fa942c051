"""The checks before a start, one module for each subject (`reo.check` has their list); none of them
changes anything.

In the order of the output:

    filter_sql.py       would stage one's Spark take the condition
    clusters.py         both clusters answer; how the destination's brokers are configured
    api_versions.py     and what their brokers support
    topics.py           the three topics of each route: cycles, partitions, what would be created
    topic_configs.py    and their configuration: sizes, retention, timestamps, replicas
    frontier.py         how far the copy is, and whether a start would continue it
    findings.py         one line of the output, and how all of them are printed
"""
