"""Several sources for the tests of mappings and of shared destinations: topics with records of
their own, and their intermediate topics fed by hand.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.harness.copy_judge import Record
from tests.harness.kafka import Clusters, make_record, until
from tests.harness.recovery import add_source_offsets
from tests.harness.service import STOP_S, Service
from tests.harness.stage_one import create_epoch, wrap_records

SOURCES = ("a", "b", "c")
PARTITIONS = 2
EACH = 20_000


def own_records(place: int, records: int = EACH) -> list[tuple[int, Record]]:
    """Records that no other source has."""
    return [
        (number % PARTITIONS, make_record(place * 1_000_000 + number)) for number in range(records)
    ]


def create_filled_sources(
    clusters: Clusters, topic: str, names: Sequence[str], records: int = EACH
) -> list[str]:
    """Sources with records of their own."""
    topics = [clusters.source.create(f"{topic}-{name}", PARTITIONS) for name in names]
    for place, name in enumerate(topics):
        clusters.source.write(
            name,
            own_records(SOURCES.index(names[place]) if names[place] in SOURCES else 9, records),
        )
    return topics


def write_stage_one_records(
    clusters: Clusters, source: str, intermediate: str, place: int, records: int = EACH
) -> None:
    """Write what stage one would write, and some of it twice."""
    batch = wrap_records(
        clusters, source, add_source_offsets(own_records(place, records)), create_epoch()
    )
    clusters.destination.write(intermediate, [*batch, *batch[-100:]])


def wait_for_source_frontiers(service: Service, sources: Sequence[str]) -> None:
    """Wait until every partition of these sources has a frontier."""

    def has_all_frontiers() -> bool:
        said = service.http_get("/metrics")[1]
        return all(
            re.search(
                rf'reo_frontier_offset{{(partition="{partition}",topic="{source}"|topic="{source}",partition="{partition}")',
                said,
            )
            for source in sources
            for partition in range(PARTITIONS)
        )

    until(has_all_frontiers, "every partition has a frontier")


def wait_until_group_is_empty(clusters: Clusters, group: str) -> str:
    """Wait until the service's group has no members."""
    cluster = clusters.destination
    until(
        lambda: not cluster.admin.describe_consumer_groups([group])[group].result().members,
        "the group is empty",
        STOP_S,
    )
    return group
