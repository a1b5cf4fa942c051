"""Two places that say how far a copy is: the database, which is the truth, and the group, which
repeats it. And rows that somebody else has touched.
"""

from __future__ import annotations

import re

import pytest

from tests.conftest import Start, make_topic_name
from tests.harness.commands import as_json
from tests.harness.kafka import Clusters, make_records, until
from tests.harness.postgresql import Server
from tests.harness.recovery import (
    add_source_offsets,
    alter_offsets,
    delete_group,
    read_commits,
    read_frontiers,
    wait_for_empty_group,
)
from tests.harness.service import stopped
from tests.harness.stage_one import create_epoch, wrap_records, write_intermediate
from tests.harness.to_tables import (
    PARTITIONS,
    assert_exact,
    make_first_copy,
    read_database_frontiers,
    read_mirror,
    run,
    start_stage_two,
    wait_for_rows,
)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that is short enough for a table."""
    return make_topic_name(request.node.name[:50])


def test_a_mirror_that_is_behind_is_restored(
    clusters: Clusters, database: Server, topic: str, start: Start
) -> None:
    """The group is set back, and a run that begins where it says repeats 100 records: they are
    dropped, and the group says again what the database says.
    """
    service = start_stage_two(clusters, database, topic, start, 300)
    run(clusters, topic, 0, 100)
    wait_for_rows(database, topic, 100)
    until(
        lambda: sum(read_frontiers(clusters.destination, topic).values()) == 98,
        "the group has it too",
    )
    early = read_commits(clusters.destination, topic)
    run(clusters, topic, 100, 200)
    wait_for_rows(database, topic, 200)
    service.stop()
    wait_for_empty_group(clusters.destination, topic)
    alter_offsets(clusters.destination, topic, early)
    assert read_mirror(clusters, topic) != read_database_frontiers(database, topic)
    start_stage_two(clusters, database, topic, start, 300).stop()
    assert read_mirror(clusters, topic) == read_database_frontiers(database, topic), (
        "no record is needed for it"
    )
    wait_for_empty_group(clusters.destination, topic)
    alter_offsets(clusters.destination, topic, early)
    run(clusters, topic, 100, 300)
    service = start_stage_two(clusters, database, topic, start, 300)
    wait_for_rows(database, topic, 300)
    until(
        lambda: service.metric("reo_records_dropped_total", reason="duplicate") == 100,
        "what was repeated is counted",
    )
    service.stop()
    assert_exact(clusters, database, topic)


def test_a_lost_mirror_is_restored_without_a_record(
    clusters: Clusters, database: Server, topic: str, start: Start
) -> None:
    """The group is deleted (or expires): the database still knows. Its frontier is committed again
    before anything else.
    """
    service = start_stage_two(clusters, database, topic, start, 200)
    run(clusters, topic, 0, 100)
    wait_for_rows(database, topic, 100)
    service.stop()
    delete_group(clusters.destination, topic)
    service = start_stage_two(clusters, database, topic, start, 200)
    assert read_frontiers(clusters.destination, topic) == {0: 49, 1: 49}
    assert read_mirror(clusters, topic) == read_database_frontiers(database, topic)
    run(clusters, topic, 100, 200)
    wait_for_rows(database, topic, 200)
    service.stop()
    assert_exact(clusters, database, topic)


@pytest.mark.long
def test_a_mirror_that_is_ahead_is_a_stop(
    clusters: Clusters, database: Server, topic: str, start: Start
) -> None:
    """The database is set back, as from a backup: nothing is copied behind the gap. What the
    message advises makes the copy whole.
    """
    service = start_stage_two(clusters, database, topic, start, 300)
    run(clusters, topic, 0, 100)
    wait_for_rows(database, topic, 100)
    backup = read_database_frontiers(database, topic)
    run(clusters, topic, 100, 200)
    wait_for_rows(database, topic, 200)
    service.stop()
    database.ask(f'DELETE FROM "{topic}" WHERE source_offset >= 50')
    for partition, (next_offset, frontier) in backup.items():
        database.ask(
            "UPDATE reo_frontier SET next_offset = %s, frontier = %s WHERE application = %s AND"
            " partition = %s",
            next_offset,
            frontier,
            f"reo-{topic}",
            partition,
        )
    run(clusters, topic, 200, 300)
    again = database.settings()
    stopped(
        start(topic, "deduplicator", **again),
        26,
        "DestinationTruncated",
        "was set back",
        "source offset 99",
        "is at 49",
        "--delete --group",
    )
    assert len(database.offsets(topic)) == 100
    delete_group(clusters.destination, topic)
    service = start_stage_two(clusters, database, topic, start, 300, **again)
    run(clusters, topic, 100, 300)
    wait_for_rows(database, topic, 300)
    service.stop()
    assert_exact(clusters, database, topic)


# What was changed behind its back


@pytest.mark.long
def test_a_foreign_row_is_a_stop(
    clusters: Clusters, database: Server, topic: str, start: Start
) -> None:
    """Behind the last row it is found at the start, and before the next records are written;
    nothing of that transaction is there.
    """
    again = make_first_copy(clusters, database, topic, start)
    insert = f'INSERT INTO "{topic}" (partition, source_offset) VALUES (%s, %s)'
    database.ask(insert, 1, 1000)
    stopped(
        start(topic, "deduplicator", **again),
        25,
        "ForeignWriter",
        f"{topic}-1",
        "source offset 1000",
    )
    database.ask(f'DELETE FROM "{topic}" WHERE source_offset = 1000')
    service = start_stage_two(clusters, database, topic, start, 200, **again)
    database.ask(insert, 0, 60)
    run(clusters, topic, 100, 200)
    stopped(service, 25, "ForeignWriter", f"{topic}-0", "source offset 60")
    assert [
        offset for partition, offset in database.offsets(topic) if partition == 0 and offset >= 60
    ] == [60]


def test_missing_rows_are_a_stop_and_an_empty_table_is_none(
    clusters: Clusters, database: Server, topic: str, start: Start
) -> None:
    """The newest rows cannot be gone by themselves: while it runs this is seen before the next
    records are written, else at the start. All rows can, by whoever has read them: what comes is
    copied, what was is not copied again.
    """
    again = make_first_copy(clusters, database, topic, start)
    service = start_stage_two(clusters, database, topic, start, 200, **again)
    database.ask(f'DELETE FROM "{topic}" WHERE partition = 1 AND source_offset > 40')
    rest = add_source_offsets(make_records(range(200), PARTITIONS), 100)
    other = wrap_records(clusters, topic, [at for at in rest if at[0] == 1], create_epoch())
    # the other partition's could be written before
    write_intermediate(clusters, topic, topic, other)
    stopped(service, 26, "DestinationTruncated", f"{topic}-1", "source offset 49, now it is 40")
    assert max(offset for partition, offset in database.offsets(topic) if partition == 1) == 40
    stopped(
        start(topic, "deduplicator", **again),
        26,
        "DestinationTruncated",
        f"{topic}-1",
        "source offset 49, now it is 40",
    )
    database.ask(f'DELETE FROM "{topic}"')
    service = start_stage_two(clusters, database, topic, start, 200, **again)
    assert "all records were deleted" in service.log
    write_intermediate(
        clusters,
        topic,
        topic,
        wrap_records(clusters, topic, [at for at in rest if at[0] == 0], create_epoch()),
    )
    wait_for_rows(database, topic, 100)
    assert database.offsets(topic)[0] == (0, 50)
    service.stop()


def test_verify_compares_the_places_of_rows(
    clusters: Clusters, database: Server, topic: str, start: Start
) -> None:
    """A row that says it is another source record's is a difference; rows of a partition that the
    source has not are not compared, and that is said.
    """
    service = start_stage_two(clusters, database, topic, start, 100)
    run(clusters, topic, 0, 100)
    wait_for_rows(database, topic, 100)
    service.stop()
    database.ask(f'INSERT INTO "{topic}" (partition, source_offset) VALUES (%s, 0)', PARTITIONS)
    to_tables = database.settings()
    exact = as_json(clusters, topic, "verify", **to_tables)
    assert (exact["records"], [row["what"] for row in exact["not_compared"]]) == (
        100,
        ["partitions"],
    )
    database.ask(
        f'UPDATE "{topic}" SET source_offset = 60 WHERE partition = 1 AND source_offset = 49'
    )
    row = as_json(clusters, topic, "verify", exit_code=30, **to_tables)["partitions"][1]
    assert (row["equal"], row["source_offset"], row["destination_offset"]) == (49, 49, 60)


def test_a_table_that_is_gone_is_copied_from_the_beginning(
    clusters: Clusters, database: Server, topic: str, start: Start
) -> None:
    """As a deleted destination topic; also where `source.start` says otherwise."""
    again = make_first_copy(clusters, database, topic, start)
    database.ask(f'DROP TABLE "{topic}"')
    service = start_stage_two(clusters, database, topic, start, 200, source_start="latest", **again)
    said = re.findall(r"(\S+): first frontier, the copy begins at source offset 0", service.log)
    assert len(set(said)) == PARTITIONS, service.log  # a start that is repeated says it again
    run(clusters, topic, 0, 200)
    wait_for_rows(database, topic, 200)
    service.stop()
    assert_exact(clusters, database, topic)
