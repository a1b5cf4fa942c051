"""A partition's frontier: where it is stored, and how the copy of a partition starts from it.

In the order of a start:

    start.py                loads, checks or creates frontiers
    start_table.py          what is found of a partition, and what is decided; found_partition.py:
                            the conditions
    frontier_store.py       where frontiers are: the group's commits, or beside the records in a
                            store outside of Kafka (stored_frontiers.py)
    committed_frontiers.py  the group's commits, and how long an unfinished transaction is waited
                            for
    frontier_check.py       compares a frontier with the destination's records
    source_start_offsets.py where `source.start` lets a copy begin
"""
