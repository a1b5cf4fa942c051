"""How `reo verify` compares, on real brokers: the places of a difference, going on where it was,
compacted topics, several processes, a bar on terminals only.

Both sides are written by hand: what a copy lacks, has twice or has changed is planted. What
compaction leaves is written as it leaves it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from common import settings as reo_settings
from common.routes import TopicPartition
from reo.compare import parallel
from reo.compare.resume_file import ResumeFile
from reo.verify import Verification
from tests.harness.commands import ESCAPE, as_json, on_a_terminal, reo
from tests.harness.compared_sides import (
    PARTITIONS,
    RECORDS,
    both_sides,
    change_headers,
    read_first_partition,
)
from tests.harness.kafka import Clusters, make_record, make_records
from tests.harness.service import build_environment


def test_the_places_of_a_difference_are_those_of_the_records(
    clusters: Clusters, topic: str
) -> None:
    """The offsets lead to the two records that differ, though markers make the copy's offsets
    others.
    """
    records = make_records(range(RECORDS), PARTITIONS)
    both_sides(
        clusters,
        topic,
        records,
        [*records[:41], (1, change_headers(records[41][1])), *records[42:]],
    )
    row = as_json(clusters, topic, "verify", exit_code=30)["partitions"][1]
    assert dict(read_first_partition(clusters, topic))[row["destination_offset"]] == change_headers(
        records[41][1]
    )
    assert (row["source_offset"], row["equal"]) == (20, 20)
    assert row["destination_offset"] > 20


def test_going_on_where_it_was(clusters: Clusters, topic: str, tmp_path: Path) -> None:
    """What was found equal is not read again, what came since is; a difference stays one. A file of
    another copy is refused (2), and no other file is taken.
    """
    file = tmp_path / "verified.json"
    records = make_records(range(2 * RECORDS), PARTITIONS)
    both_sides(clusters, topic, records[:RECORDS], records[:RECORDS])
    first = as_json(clusters, topic, "verify", "--resume", str(file))
    assert (first["records"], first["compared_before"]) == (RECORDS, 0)
    again = as_json(clusters, topic, "verify", "--resume", str(file))
    assert (again["records"], again["compared_before"]) == (RECORDS, RECORDS)
    clusters.source.write(topic, records[RECORDS:])
    clusters.destination.write(topic, records[RECORDS:-1])
    for _ in range(2):
        lacking = as_json(clusters, topic, "verify", "--resume", str(file), exit_code=30)
        assert lacking["partitions"][1]["source_offset"] == RECORDS - 1
    assert (lacking["compared_before"], lacking["records"]) == (2 * RECORDS - 1, 2 * RECORDS - 1)
    clusters.destination.write(topic, records[-1:])
    text = reo(clusters, topic, "verify", "--resume", str(file)).stdout
    assert "1 records compared in " in text
    assert f"({2 * RECORDS - 1} more were compared before): exact" in text
    clusters.destination.delete(topic)
    clusters.destination.create(topic, PARTITIONS)
    assert (
        "or its copy was recreated"
        in reo(clusters, topic, "verify", "--resume", str(file), exit_code=2).stderr
    )
    file.write_text("[]")
    assert (
        "is not a file that reo verify has written"
        in reo(clusters, topic, "verify", "--resume", str(file), exit_code=2).stderr
    )


def test_what_was_compared_is_not_read_again(
    clusters: Clusters, topic: str, tmp_path: Path
) -> None:
    """A difference behind the place that the file names is not seen: so the file is what is gone on
    from.
    """
    records = make_records(range(RECORDS), PARTITIONS)
    both_sides(clusters, topic, records, [(0, change_headers(records[0][1])), *records[1:]])
    file = tmp_path / "verified.json"
    assert (
        as_json(clusters, topic, "verify", "--resume", str(file), exit_code=30)["partitions"][0][
            "source_offset"
        ]
        == 0
    )
    known = json.loads(file.read_text())
    known["partitions"][f"{topic}-0"] = [1, 1, 1]
    file.write_text(json.dumps(known))
    assert (
        as_json(clusters, topic, "verify", "--resume", str(file))["compared_before"]
        == 1 + RECORDS // PARTITIONS
    )


def test_compaction_on_one_side_is_no_difference(clusters: Clusters, topic: str) -> None:
    """The source has each key three times, the copy what compaction leaves of it: equal by key.
    Without a key's newest record it is not.
    """
    records = [
        (0, make_record(number)._replace(key=b"key-%d" % (number % 10))) for number in range(30)
    ]
    gone = (0, make_record(30)._replace(key=b"key-3", value=None))
    left = [*records[:2], *[row for row in records[20:] if row[1].key != b"key-3"]]
    both_sides(clusters, topic, [*records, gone], left, cleanup_policy="compact")
    found = as_json(clusters, topic, "verify")
    row = found["partitions"][0]
    assert (row["equal"], row["by_key"], row["difference"]) == (9, True, None)
    assert [(unseen["what"], unseen["partition"]) for unseen in found["not_compared"]] == [
        ("compaction", 0)
    ]
    clusters.destination.write(topic, [(0, change_headers(records[25][1]))])
    row = as_json(clusters, topic, "verify", exit_code=30)["partitions"][0]
    assert (
        "1 keys do not have the same newest record; of the first one the source has it at offset 25"
        in row["difference"]
    )
    assert (row["equal"], row["source_offset"]) == (8, 25)


def test_processes_beside_each_other(
    clusters: Clusters, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same results as in one process, and all progress is told."""
    monkeypatch.setattr(parallel, "PARALLEL_RECORDS_MIN", 0)
    records = make_records(range(RECORDS), PARTITIONS)
    both_sides(clusters, topic, records, records[:-1])
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    processes = Mock(wraps=parallel._compare_in_processes)
    monkeypatch.setattr(parallel, "_compare_in_processes", processes)
    told: list[int] = []
    settings = reo_settings.load(build_environment(clusters, topic, {}))
    results = Verification(settings, ResumeFile(None)).run(told.append)
    assert processes.call_count == 1
    assert [(result.tp, result.equal, bool(result.difference)) for result in results] == [
        (TopicPartition(topic, 0), 30, False),
        (TopicPartition(topic, 1), 29, True),
    ]
    assert sum(told) == RECORDS - 1
    clusters.destination.delete(topic)
    with pytest.raises(Exception, match="does not exist: nothing was copied to it yet"):
        Verification(settings, ResumeFile(None))


def test_a_bar_on_a_terminal_only(clusters: Clusters, topic: str) -> None:
    """On a terminal there are escape codes of the bar; on a pipe, `tests.harness.commands.reo`
    looks for them in every test, there are none.
    """
    records = make_records(range(RECORDS), PARTITIONS)
    both_sides(clusters, topic, records, records)
    terminal = on_a_terminal(build_environment(clusters, topic, {}), "verify")
    assert ESCAPE in terminal
    assert f"{RECORDS} records compared" in terminal
