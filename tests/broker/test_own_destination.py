"""A destination of a user's own: the example of its page, on a real broker, with a worker that is
killed; and commands that cannot read what it has stored.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest

from tests.conftest import Start
from tests.harness.commands import reo, reo_with
from tests.harness.judge import Record
from tests.harness.kafka import START_S, Clusters, make_records, until
from tests.harness.own_store import write_example
from tests.harness.recovery import add_source_offsets
from tests.harness.service import build_environment, send_signal, stopped
from tests.harness.stage_one import (
    create_epoch,
    wait_for_frontiers,
    wrap_records,
    write_intermediate,
)

RECORDS = 6000
PARTITIONS = 2


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


@pytest.mark.parametrize("words", ["verify", "recover", "topics", "offsets translate --group g"])
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
    assert (
        "cannot be used with destination.class: only that class can read what it has stored" in said
    )
