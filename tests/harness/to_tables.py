"""What the tests of stage two into PostgreSQL do: the intermediate topic is fed by hand, the rows
are the judge's to look at.
"""

from __future__ import annotations

from tests.conftest import Start
from tests.harness.copy_judge import compare_partitions
from tests.harness.kafka import START_S, Clusters, make_records, until
from tests.harness.postgresql import Server
from tests.harness.recovery import add_source_offsets, read_commits
from tests.harness.service import Service
from tests.harness.stage_one import (
    create_epoch,
    wait_for_frontiers,
    wrap_records,
    write_intermediate,
)

PARTITIONS = 2
WRONG = "s3cr3t-but-wrong"
"""A password that opens nothing, and is looked for in logs."""
COLUMNS = (
    "partition int, source_offset bigint, timestamp_ms bigint, key bytea, value bytea, header_names"
    " text[], header_values bytea[]"
)
"""Those of a table that takes a copy, as CREATE TABLE has them."""


def start_stage_two(
    clusters: Clusters, database: Server, topic: str, start: Start, records: int, **more: str
) -> Service:
    """A source with so many records, and stage two with its frontiers."""
    if not clusters.source.partitions(topic):
        clusters.source.create(topic, PARTITIONS)
        clusters.source.write(topic, make_records(range(records), PARTITIONS))
    service = start(topic, "deduplicator", **database.settings() | more)
    wait_for_frontiers(service, PARTITIONS)
    return service


def run(clusters: Clusters, topic: str, begin: int, end: int, epoch: int | None = None) -> None:
    """What stage one writes in a run of these records, with an epoch of its own."""
    records = add_source_offsets(make_records(range(end), PARTITIONS), begin)
    write_intermediate(
        clusters, topic, topic, wrap_records(clusters, topic, records, epoch or create_epoch())
    )


def wait_for_rows(database: Server, topic: str, records: int, timeout_s: float = START_S) -> None:
    """Wait until so many rows are there, and no more."""
    until(lambda: len(database.offsets(topic)) >= records, f"{records} rows of {topic}", timeout_s)
    assert len(database.offsets(topic)) == records


def assert_exact(clusters: Clusters, database: Server, topic: str) -> None:
    """The judge's verdict; each row has its source's offset; and the group says what the database
    says.
    """
    source = clusters.source.read(topic)
    assert compare_partitions(source, database.read(topic, PARTITIONS)) == []
    assert database.offsets(topic) == [
        (partition, offset)
        for partition, records in source.items()
        for offset in range(len(records))
    ]
    assert read_mirror(clusters, topic) == read_database_frontiers(database, topic)


def read_mirror(clusters: Clusters, topic: str) -> dict[int, tuple[int, str | None]]:
    """The group's commits."""
    return {
        partition: tuple(commit)
        for partition, commit in read_commits(clusters.destination, topic).items()
    }


def read_database_frontiers(database: Server, topic: str) -> dict[int, tuple[int, str]]:
    """The frontiers, as the group should have them."""
    rows = database.ask(
        "SELECT partition, next_offset, frontier FROM reo_frontier WHERE application = %s",
        f"reo-{topic}",
    )
    return {partition: (next_offset, frontier) for partition, next_offset, frontier in rows}


def make_first_copy(
    clusters: Clusters, database: Server, topic: str, start: Start
) -> dict[str, str]:
    """A finished copy of 100 records; returns the settings to go on with."""
    service = start_stage_two(clusters, database, topic, start, 200)
    run(clusters, topic, 0, 100)
    wait_for_rows(database, topic, 100)
    service.stop()
    return database.settings()
