"""A finished first copy of 100 records, made by stage two alone from records wrapped by hand: no
start of Spark. And the records that the source gets after it.
"""

from __future__ import annotations

from tests.conftest import Start
from tests.harness.copy_judge import Record
from tests.harness.kafka import Clusters, make_records
from tests.harness.service import STOP_S
from tests.harness.stage_one import wait_for_frontiers, wrap_records, write_intermediate

FIRST = 100
PARTITIONS = 2


def more_records() -> list[tuple[int, Record]]:
    """What the source gets after the first copy: in each partition, one with headers, one without,
    …
    """
    return [
        (partition, record if number // PARTITIONS % 2 else record._replace(headers=()))
        for number, (partition, record) in enumerate(
            make_records(range(FIRST, 2 * FIRST), PARTITIONS)
        )
    ]


def add_offsets(records: list[tuple[int, Record]]) -> list[tuple[int, int, Record]]:
    """(partition, source offset, record): the source has no gaps here."""
    first = int(records[0][1].value[:10])
    return [
        (partition, (first + number) // PARTITIONS, record)
        for number, (partition, record) in enumerate(records)
    ]


def make_first_copy(clusters: Clusters, topic: str, start: Start) -> None:
    """Make a source with FIRST records and copy them; the service has stopped when this returns."""
    clusters.source.create(topic, PARTITIONS)
    clusters.source.write(topic, make_records(range(FIRST), PARTITIONS))
    service = start(topic, "deduplicator")
    wait_for_frontiers(service, PARTITIONS)
    write_intermediate(
        clusters,
        topic,
        topic,
        wrap_records(clusters, topic, add_offsets(make_records(range(FIRST), PARTITIONS))),
    )
    clusters.wait_for_copy(topic, FIRST, STOP_S)
    service.stop()
