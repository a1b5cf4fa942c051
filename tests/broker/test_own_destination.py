"""A destination of a user's own: the example of its page, on a real broker, with a worker that is
killed; what else a class may have, one without positions, and commands that are refused.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Start
from tests.harness.commands import reo, reo_with
from tests.harness.copy_judge import Record
from tests.harness.failpoint_marker import wait_for_failpoint
from tests.harness.findings import list_findings
from tests.harness.kafka import START_S, Clusters, make_records, until
from tests.harness.merged_topics import build_topics_environment
from tests.harness.own_store import write_example
from tests.harness.recovery import add_source_offsets, wait_for_empty_group
from tests.harness.service import build_environment, send_signal, stopped
from tests.harness.stage_one import (
    create_epoch,
    wait_for_frontiers,
    wrap_records,
    write_intermediate,
)

RECORDS = 6000
PARTITIONS = 2
KILLED_AT = "two: committed"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Has the module of the page's example."""
    write_example(tmp_path)
    return tmp_path


def build_settings(folder: Path) -> dict[str, str]:
    """The settings."""
    return {
        "destination_class": "own_store:SqliteStore",
        "destination_options": f'{{"file": "{folder / "own.db"}"}}',
    }


def read_stored_records(
    folder: Path, topic: str
) -> dict[int, list[tuple[bytes | None, bytes | None, int]]]:
    """Its records, by partition, in the order in which they were inserted."""
    found: dict[int, list[tuple[bytes | None, bytes | None, int]]] = {
        partition: [] for partition in range(PARTITIONS)
    }
    with contextlib.closing(sqlite3.connect(folder / "own.db", timeout=START_S)) as database:
        # at once: the worker cannot commit while a SELECT is not at its end
        rows = database.execute(
            "SELECT partition, key, value, timestamp_ms FROM records WHERE topic = ? ORDER BY"
            " rowid",
            [topic],
        ).fetchall()
    for partition, *record in rows:
        found[partition].append((record[0], record[1], record[2]))
    return found


def write_source_and_intermediate(
    clusters: Clusters, topic: str
) -> dict[int, list[tuple[bytes | None, bytes | None, int]]]:
    """The source, and what stage one would write of it, some of it twice; what has to be stored of
    it.
    """
    written = make_records(range(RECORDS), PARTITIONS)
    clusters.source.write(topic, written)
    batch = wrap_records(clusters, topic, add_source_offsets(written), create_epoch())
    write_intermediate(clusters, topic, topic, [*batch, *batch[-100:]])

    def parts(record: Record) -> tuple[bytes | None, bytes | None, int]:
        return record.key, record.value, record.timestamp_ms

    return {
        partition: [parts(record) for number, record in written if number == partition]
        for partition in range(PARTITIONS)
    }


def test_the_example_copies_exactly_while_workers_are_killed(
    clusters: Clusters, topic: str, start: Start, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is killed in the middle: every record is stored once and in order, no topic is
    created, and the commands know the copy.
    """
    monkeypatch.setenv("PYTHONPATH", str(folder))
    clusters.source.create(topic, PARTITIONS)
    service = start(
        topic, "deduplicator", deduplicator_transaction_records="100", **build_settings(folder)
    )
    wait_for_frontiers(service, PARTITIONS)
    wanted = write_source_and_intermediate(clusters, topic)
    until(lambda: sum(map(len, read_stored_records(folder, topic).values())) > 500, "records flow")
    send_signal(until(lambda: service.find_pid("deduplicator"), "the worker lives"))
    until(
        lambda: sum(map(len, read_stored_records(folder, topic).values())) >= RECORDS,
        "all is there",
        90,
    )
    until(
        lambda: service.metric("reo_stage_restarts_total", stage="deduplicator") >= 1,
        "the kill is seen",
    )
    assert read_stored_records(folder, topic) == wanted
    assert clusters.destination.partitions(topic) == 0
    environment = build_environment(clusters, topic, build_settings(folder)) | {
        "PYTHONPATH": str(folder)
    }
    until(
        lambda: (
            json.loads(reo_with(environment, "lag", "--json").stdout)["total"]["both"]["records"]
            == 0
        ),
        "the group repeats the positions",
    )
    service.stop()
    with sqlite3.connect(folder / "own.db") as database:
        database.execute(
            "DELETE FROM records WHERE partition = 1 AND source_offset = ?",
            [RECORDS // PARTITIONS - 1],
        )
    stopped(
        start(topic, "deduplicator", **build_settings(folder)),
        26,
        "DestinationTruncated",
        f"{topic}-1",
        f"had source offset {RECORDS // PARTITIONS - 1}",
    )


def test_what_may_be_left_out_of_a_class(
    clusters: Clusters, topic: str, start: Start, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`reo check` asks the class, and compares the positions with the last records; `reo verify`
    reads its records. Neither is there without the method.
    """
    monkeypatch.setenv("PYTHONPATH", str(folder))
    settings = build_settings(folder) | {"destination_class": "tests.harness.full_store:FullStore"}
    records = [
        (number % PARTITIONS, record._replace(headers=()))
        for number, (_, record) in enumerate(make_records(range(100), PARTITIONS))
    ]
    clusters.source.create(topic, PARTITIONS)
    clusters.source.write(topic, records)
    service = start(topic, "deduplicator", **settings)
    wait_for_frontiers(service, PARTITIONS)
    write_intermediate(
        clusters, topic, topic, wrap_records(clusters, topic, add_source_offsets(records))
    )
    until(
        lambda: sum(map(len, read_stored_records(folder, topic).values())) == 100, "all is stored"
    )
    service.stop()
    wait_for_empty_group(clusters.destination, topic)

    def run(*words: str, exit_code: int = 0, **more: str) -> Any:
        environment = build_environment(clusters, topic, settings | more)
        environment["PYTHONPATH"] = str(folder)
        return json.loads(reo_with(environment, *words, "--json", exit_code=exit_code).stdout)

    check = run("check")
    assert list_findings(check, "ok", "own store") == [f"has {topic}"]
    assert list_findings(check, "ok", "frontier")[0].endswith(
        "the destination confirms it; the copy would continue at source offsets 0=50, 1=50; 0"
        " offsets to copy"
    )
    verdict = run("verify")
    assert (verdict["records"], verdict["not_compared"]) == (100, [])
    with contextlib.closing(sqlite3.connect(folder / "own.db")) as database, database:
        database.execute("UPDATE records SET value = ? WHERE source_offset = 7", [b"other"])
        database.execute("DELETE FROM records WHERE source_offset = 49 AND partition = 1")
    assert run("verify", exit_code=30)["partitions"][0]["source_offset"] == 7
    assert (
        "had source offset 49, now it is 48"
        in list_findings(run("check", exit_code=26), "error", "frontier")[0]
    )
    example = build_settings(folder)
    assert (
        "only own_store:SqliteStore knows what it has stored"
        in list_findings(run("check", **example), "warning", "frontier")[0]
    )
    environment = build_environment(clusters, topic, settings | example)
    said = reo_with(environment | {"PYTHONPATH": str(folder)}, "verify", exit_code=2).stderr
    assert "own_store:SqliteStore: it has no `read`" in said


def test_several_sources_in_one_topic(
    clusters: Clusters, topic: str, start: Start, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each record says which source it is of, so that the offsets of two do not meet; with a
    worker that is started again in the middle.
    """
    monkeypatch.setenv("PYTHONPATH", str(folder))
    sources = [f"{topic}-{number}" for number in range(2)]
    records = add_source_offsets(make_records(range(200), 1))
    epoch = create_epoch()
    for source in sources:
        clusters.source.create(source, 1)
        clusters.source.write(source, make_records(range(200), 1))
    for half in (records[:100], records[100:]):
        service = start(
            "",
            "deduplicator",
            environment=build_topics_environment(
                clusters,
                f"reo-{topic}",
                ",".join(f"{source}={topic}:3" for source in sources),
                **build_settings(folder),
            ),
        )
        wait_for_frontiers(service, 1)
        for source in sources:
            wrapped = wrap_records(clusters, source, half, epoch, {0: half[0][1] - 1})
            clusters.destination.write(f"{topic}-{source}-proxy", wrapped)
        wanted = [(3, source, offset) for source in sources for _, offset, _ in records]
        until(
            lambda: len(list_places(folder)) == 2 * (half[-1][1] + 1),  # noqa: B023
            "both are stored",
        )
        service.stop()
    assert list_places(folder) == wanted


def list_places(folder: Path) -> list[tuple[int, str, int]]:
    """Partition, source topic and source offset of each record, by source in their order."""
    with contextlib.closing(sqlite3.connect(folder / "own.db", timeout=START_S)) as database:
        return database.execute(
            "SELECT partition, source_topic, source_offset FROM records ORDER BY source_topic,"
            " rowid"
        ).fetchall()


def test_a_class_without_positions_gets_every_record_at_least_once(
    clusters: Clusters, topic: str, start: Start, tmp_path: Path
) -> None:
    """Killed between its commit and the group's: that round comes again. Nothing is missing, and
    the first copies of a partition's records are in order.
    """
    proof, file = tmp_path / "frozen", tmp_path / "lines"
    settings = {
        "destination_class": "tests.harness.line_store:LineStore",
        "destination_options": json.dumps({"file": str(file)}),
    }
    clusters.source.create(topic, PARTITIONS)
    refused = start(topic, "deduplicator", **settings)
    stopped(refused, 2, "SettingsInvalid")
    assert "it has no take_over" in refused.log
    service = start(
        topic,
        "deduplicator",
        destination_guarantee="at-least-once",
        deduplicator_transaction_records="100",
        # the first frontier's commit, then before and after the group's commit in each round
        freeze_at=f"{KILLED_AT}:6:{proof}",
        **settings,
    )
    wait_for_frontiers(service, PARTITIONS)
    write_source_and_intermediate(clusters, topic)
    send_signal(wait_for_failpoint(proof, KILLED_AT))

    def read_firsts() -> list[list[int]]:
        lines = map(json.loads, file.read_text().splitlines())
        return [
            [offset for number, offset in lines_of if number == partition]
            for lines_of in [list(dict.fromkeys(map(tuple, lines)))]
            for partition in range(PARTITIONS)
        ]

    until(lambda: sum(map(len, read_firsts())) == RECORDS, "all is there", 90)
    service.stop()
    assert read_firsts() == [list(range(RECORDS // PARTITIONS))] * PARTITIONS
    assert len(file.read_text().splitlines()) > RECORDS, "a round came again"


@pytest.mark.parametrize("words", ["recover", "topics", "offsets translate --group g"])
def test_commands_that_read_a_destination_topic_say_so(
    clusters: Clusters, topic: str, words: str
) -> None:
    """Exit code 2."""
    clusters.source.create(topic, 1)
    said = reo(
        clusters,
        topic,
        *words.split(),
        exit_code=2,
        destination_class="tests.harness.filter_functions:every",
    ).stderr
    assert "cannot be used with destination.class: " in said
