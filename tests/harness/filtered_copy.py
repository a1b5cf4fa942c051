"""Copies by stage two with a filter, from a stage one of one line."""

from __future__ import annotations

from tests.conftest import Start
from tests.harness.copy_judge import Record
from tests.harness.kafka import Clusters, make_records, until
from tests.harness.recovery import add_source_offsets
from tests.harness.service import Service
from tests.harness.stage_one import (
    create_epoch,
    wait_for_frontiers,
    wrap_records,
    write_intermediate,
)

PARTITIONS = 2


def write_source_and_intermediate(
    clusters: Clusters, topic: str, records: int
) -> list[tuple[int, Record]]:
    """The source, and what stage one would write of it, some of it twice."""
    written = make_records(range(records), PARTITIONS)
    clusters.source.write(topic, written)
    batch = wrap_records(clusters, topic, add_source_offsets(written), create_epoch())
    write_intermediate(clusters, topic, topic, [*batch, *batch[-100:]])
    return written


def start_stage_two(clusters: Clusters, topic: str, start: Start, **more: str) -> Service:
    """Stage two with frontiers, and an empty source."""
    clusters.source.create(topic, PARTITIONS)
    service = start(topic, "deduplicator", **more)
    wait_for_frontiers(service, PARTITIONS)
    return service


def wait_for_end(clusters: Clusters, service: Service, records: int, *written: str) -> None:
    """Wait until the frontiers are at the source's end, and readers see what was committed: a
    commit is answered before its markers are written.
    """
    until(
        lambda: (
            sum(
                service.metric("reo_frontier_offset", partition=str(partition))
                for partition in range(PARTITIONS)
            )
            == records - PARTITIONS
        ),
        "the frontiers are at the end",
    )
    for topic in written:
        until(
            lambda topic=topic: (
                clusters.destination.end_offsets(topic, stable=True)
                == clusters.destination.end_offsets(topic)
            ),
            "it is visible",
        )
