"""The judge of routes that are not one to one, and what starts services of several topics.

A record of these tests is like no other, so a destination partition can be taken apart again into what came from each source partition: each part has
to be that source partition's records, or those of them that belong there, once and in order; and nothing may be left over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tests.judge import Partitions, Record, compare_records
from tests.kafka import Clusters
from tests.service import build_environment

PartitionOf = Callable[[int, Record], int]
"""Source partition and record → destination partition."""


def compare_merged(sources: Mapping[str, Partitions], copy: Partitions, belongs: PartitionOf) -> list[str]:
    """What is wrong with a destination to which all these topics are copied; empty when nothing is."""
    lines = []
    for partition, records in copy.items():
        left = list(records)
        for topic, there in sources.items():
            for number, all_of_it in there.items():
                wanted = [record for record in all_of_it if belongs(number, record) == partition]
                known = set(all_of_it)
                found = [record for record in left if record in known]
                left = [record for record in left if record not in known]
                differences = compare_records(wanted, found)
                if differences:
                    lines.append(f"{topic}-{number} in partition {partition}: {differences}")
        if left:
            lines.append(f"partition {partition}: {len(left)} records of nobody, the first is {left[0]}")
    missing = {belongs(number, record) for there in sources.values() for number, records in there.items() for record in records} - set(copy)
    return [*lines, *(f"there is no partition {partition}" for partition in sorted(missing))]


def compare_merged_topics(clusters: Clusters, sources: Sequence[str], copy: str, belongs: PartitionOf) -> list[str]:
    """The verdict on topics of the source cluster and their common copy."""
    return compare_merged({topic: clusters.source.read(topic) for topic in sources}, clusters.destination.read(copy), belongs)


def build_topics_environment(clusters: Clusters, application: str, topics: str, **more: str) -> dict[str, str]:
    """The environment of a service that copies these topics."""
    given = build_environment(clusters, "", {"application": application, "topics": topics, **more})
    del given["REO_SOURCE_TOPIC"]
    return given
