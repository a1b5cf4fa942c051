"""The judge of routes that are not one to one, and the environment of a service with several
topics.

Each record of these tests is unique, so the records of a destination partition can be assigned to
their source partitions again: each part must have that source partition's records, or those that
are routed there, once and in order; and no record may remain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tests.harness.copy_judge import Partitions, Record, compare_records
from tests.harness.kafka import Clusters
from tests.harness.service import build_environment

PartitionOf = Callable[[int, Record], int]
"""Source partition and record → destination partition."""


def compare_merged(
    sources: Mapping[str, Partitions], copy: Partitions, partition_of: PartitionOf
) -> list[str]:
    """The differences between a destination and all topics that are copied to it; empty when the
    copy is exact.
    """
    lines = []
    for partition, records in copy.items():
        unmatched = list(records)
        for topic, partitions in sources.items():
            for source_partition, source_records in partitions.items():
                expected = [
                    record
                    for record in source_records
                    if partition_of(source_partition, record) == partition
                ]
                known = set(source_records)
                copied = [record for record in unmatched if record in known]
                unmatched = [record for record in unmatched if record not in known]
                differences = compare_records(expected, copied)
                if differences:
                    lines.append(
                        f"{topic}-{source_partition} in partition {partition}: {differences}"
                    )
        if unmatched:
            lines.append(
                f"partition {partition}: {len(unmatched)} records that no source has, the first is"
                f" {unmatched[0]}"
            )
    missing = {
        partition_of(source_partition, record)
        for partitions in sources.values()
        for source_partition, records in partitions.items()
        for record in records
    } - set(copy)
    return [*lines, *(f"there is no partition {partition}" for partition in sorted(missing))]


def compare_merged_topics(
    clusters: Clusters, sources: Sequence[str], copy: str, partition_of: PartitionOf
) -> list[str]:
    """The differences between topics of the source cluster and their common copy."""
    return compare_merged(
        {topic: clusters.source.read(topic) for topic in sources},
        clusters.destination.read(copy),
        partition_of,
    )


def build_topics_environment(
    clusters: Clusters, application: str, topics: str, **more: str
) -> dict[str, str]:
    """The environment of a service that copies these topics."""
    environment = build_environment(
        clusters, "", {"application": application, "topics": topics, **more}
    )
    del environment["REO_SOURCE_TOPIC"]
    return environment
