"""`reo inspect` on a real broker: envelopes with records and without, what an earlier version has
left, and what somebody else wrote.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import TopicPartition as ClientTopicPartition

from common.envelope import Head
from common.kafka import partition_offsets
from common.kafka.clients import create_admin_client
from common.routes import TopicPartition
from common.settings import load
from reo.progress.inspect import read_rows as read_rows_now
from tests.harness.commands import reo
from tests.harness.copy_judge import Record
from tests.harness.kafka import Clusters, make_record, make_records
from tests.harness.recovery import add_source_offsets
from tests.harness.service import build_environment
from tests.harness.stage_one import RECORDS_MAX, build_record, wrap_records
from tools.envelope_encoder import encode

PARTITIONS = 2
EPOCH = 77
EMPTY = Head("1d" * 8, EPOCH, 1, 9, 40, has_left_out=True)
DAMAGED = encode(Head("1d" * 8, EPOCH, 1, 40, 41), [build_record(41, make_record(41))])[:-1]


def test_envelopes_are_printed(
    clusters: Clusters, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with what its head says, and with its records on demand, as text and as JSON; what is no
    envelope with the reason; from an offset on, of one partition, so many; nothing is changed.
    """
    clusters.source.create(topic, PARTITIONS)
    assert (
        "there is no intermediate topic yet" in reo(clusters, topic, "inspect", exit_code=11).stderr
    )
    clusters.destination.create(f"{topic}-proxy", PARTITIONS)
    assert reo(clusters, topic, "inspect", "--json").stdout.strip() == ""
    empty = reo(clusters, topic, "inspect").stdout
    assert empty == f"nothing on {topic}-proxy: what is copied is deleted\n"
    records = make_records(range(20), PARTITIONS)
    write_everything(clusters, topic, records)
    before = clusters.destination.end_offsets(f"{topic}-proxy")

    rows = read_rows(clusters, topic)
    assert [(row["partition"], row["offset"]) for row in rows] == [
        *((0, offset) for offset in range(2)),
        *((1, offset) for offset in range(7)),
    ]
    heads = [row["envelope"] for row in rows if "envelope" in row]
    assert [
        (head["epoch"], head["after"], head["through"], head["records"], head["left_out"])
        for head in heads
    ] == [
        *[
            (EPOCH, -1, RECORDS_MAX - 1, RECORDS_MAX, False),
            (EPOCH, RECORDS_MAX - 1, 9, 10 - RECORDS_MAX, False),
        ]
        * PARTITIONS,
        (EPOCH, 9, 40, 0, True),
        (EPOCH + 1, -1, -1, 0, False),
        (EPOCH, 40, 41, 1, False),
    ]
    assert "Stage one did not write it" in rows[-1]["foreign"]
    assert [row["offset"] for row in rows if "old_format" in row] == [4]
    assert not any("records" in row for row in rows)

    in_full = read_rows(clusters, topic, "--records")
    found = [record for row in in_full[:2] for record in row["records"]]
    assert [(record["source_offset"], record["key"]) for record in found] == [
        (offset, record.key.decode())
        for offset, record in enumerate(record for partition, record in records if partition == 0)
        if record.key
    ]
    assert {(record["timestamp_kind"], record["value_bytes"]) for record in found} == {
        ("create", 100)
    }
    assert {tuple(record["headers"]) for record in found} == {("number",)}
    assert [row["offset"] for row in in_full if "foreign" in row] == [5, 6], "one is damaged"
    check_text(clusters, topic)
    assert clusters.destination.end_offsets(f"{topic}-proxy") == before
    check_purged(clusters, topic, monkeypatch)


def write_everything(clusters: Clusters, topic: str, records: list[tuple[int, Record]]) -> None:
    """Two envelopes of each partition, and in partition 1 all else that can be there."""
    written = wrap_records(clusters, topic, add_source_offsets(records), EPOCH)
    written += [
        (1, Record(None, encode(EMPTY))),
        (1, Record(None, encode(Head("1d" * 8, EPOCH + 1, 1, -1, -1)))),
        (1, Record(b"a key", b"a value", (("__origin", b"of an earlier version"),))),
        (1, Record(None, DAMAGED)),
        (1, Record(b"whose", b"is this")),
    ]
    clusters.destination.write(f"{topic}-proxy", written)


def read_rows(clusters: Clusters, topic: str, *arguments: str) -> list[dict[str, Any]]:
    """All as JSON."""
    said = reo(clusters, topic, "inspect", "--json", "--count", "100", *arguments).stdout
    return [json.loads(line) for line in said.splitlines()]


def check_text(clusters: Clusters, topic: str) -> None:
    """The same in words."""

    def read_lines(*arguments: str) -> list[str]:
        said = reo(clusters, topic, "inspect", "--partition", "1", *arguments).stdout
        return said.splitlines()[1:]

    lines = read_lines("--from", "2", "--count", "3")
    assert [line.split()[1] for line in lines] == ["2", "3", "4"]
    assert [line.partition("54 bytes  ")[2] for line in lines[:2]] == [
        "nothing to copy",
        "a run begins",
    ]
    assert lines[2].endswith("of an earlier version of reo")
    (last,) = read_lines("--count", "1")
    assert last.endswith("not reo's, or damaged")
    in_full = read_lines("--records", "--count", "100")
    assert [line.split()[1] for line in in_full] == [
        *["0"] * RECORDS_MAX,
        *["1"] * (10 - RECORDS_MAX),
        *"23456",
    ]
    assert "'key-1'" in in_full[0]
    assert "create" in in_full[0]


def check_purged(clusters: Clusters, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stage two deletes records between the look at the beginnings and the read."""
    settings = load(build_environment(clusters, topic, {}))
    tp = TopicPartition(f"{topic}-proxy", 1)
    bounds = partition_offsets.list_bounds(
        create_admin_client(settings.destination_cluster, settings), [tp]
    )
    purged = ClientTopicPartition(*tp, 5)
    clusters.destination.admin.delete_records([purged])[purged].result()
    monkeypatch.setattr(partition_offsets, "list_bounds", lambda *_: bounds)
    rows = read_rows_now(settings, {tp: 1}, None, 100, with_records=False)
    assert [row["offset"] for row in rows] == [5, 6]
