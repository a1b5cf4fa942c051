"""`reo cutover back` after others have written at the destination, on real brokers: the topics move
back by a copy in the other direction, and there again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import Start
from tests.harness import moving
from tests.harness.commands import COMMAND_S, as_json, reo
from tests.harness.kafka import ROOT, Clusters, make_records, until
from tests.harness.service import Service, build_environment, stopped
from tests.harness.stage_one import wait_for_frontiers
from tests.harness.transactional_copy import (
    PARTITIONS,
    SMALL,
    copy,
    placed,
    write_transactions,
)
from tools.demo import fair_share

QUICK = ("--quiet", "1")
WRITTEN = 200


def start_copy(pair: Clusters, topic: str, start: Start) -> Service:
    """Stage two, in this direction."""
    return start(topic, "deduplicator", environment=build_environment(pair, topic, {}))


class Applications:
    """A producer that counts, and a consumer that processes what it counts."""

    def __init__(self, topic: str, folder: Path) -> None:
        self.topic, self.group = topic, f"{topic}-group"
        self.number, self.processed = folder / "number", folder / "processed"
        self.number.write_text("0")

    def begin(self, address: str, reset: str) -> None:
        """On this cluster."""
        self.producer = moving.start("count", address, self.topic, str(self.number))
        self.consumer = moving.start(
            "consume", address, self.topic, self.group, str(self.processed), reset
        )

    def wait_for_more(self) -> None:
        """Until the consumer has processed more of what the producer goes on to write."""
        before = self.count_processed()
        until(lambda: self.count_processed() > before + WRITTEN, "they go on")

    def count_processed(self) -> int:
        """Records, each as often as it was processed."""
        return sum(map(len, moving.lines_by_partition(self.processed).values()))

    def wait_for_all(self) -> int:
        """Stop the producer; returns how many numbers it has written, when all are processed."""
        moving.end(self.producer)
        written = int(self.number.read_text())
        until(lambda: self.count_processed() >= written, "all is processed")
        moving.end(self.consumer)
        return written


def run_cutover(pair: Clusters, topic: str, service: Service, running: Applications) -> str:
    """Stop what the command waits for, when it waits; returns what it prints."""
    command = subprocess.Popen(
        [sys.executable, "-m", "reo", "cutover", "run", *QUICK],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]} | build_environment(pair, topic, {}),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    actions = {
        "1 waiting": lambda: moving.end(running.producer),
        "4 waiting": lambda: moving.end(running.consumer),
        "5 waiting": service.stop,
    }
    assert command.stderr
    said = []
    for line in command.stderr:
        said.append(line)
        for words in [words for words in actions if line.startswith(words)]:
            actions.pop(words)()
    result, _ = fair_share.communicate(command, COMMAND_S)
    assert (command.returncode, actions) == (0, {}), "".join(said)
    return result


def test_every_command_knows_what_has_moved(clusters: Clusters, topic: str, start: Start) -> None:
    """As long as nobody has written at the destination, `cutover back` undoes the move. After that
    the copy is still exact in what it has copied, and no service goes on with it; a record that
    was written at the source as well rules out a way back.
    """
    other = clusters.source.create(f"{topic}-other", 1)
    clusters.source.create(topic, PARTITIONS)
    write_transactions(clusters.source, topic)
    service = start(topic, "deduplicator", **SMALL)
    copy(clusters, topic, service)
    service.stop()
    # the record is written also while the group has members
    beside = start(other, "deduplicator", application=f"reo-{topic}", instance="other")
    wait_for_frontiers(beside, 1)
    move = ("cutover", "run", *QUICK)
    assert "the topics have moved" in reo(clusters, topic, *move).stdout
    assert "the move is undone" in reo(clusters, topic, "cutover", "back").stdout
    assert [row["moved"] for row in as_json(clusters, topic, "status")["partitions"]] == [None] * 2
    service = start(topic, "deduplicator")
    wait_for_frontiers(service, PARTITIONS)
    service.stop()
    assert "the topics have moved" in reo(clusters, topic, *move).stdout
    ends = clusters.source.end_offsets(topic)
    exact = as_json(clusters, topic, "verify")
    clusters.destination.write(topic, make_records(range(10), PARTITIONS))
    verified = as_json(clusters, topic, "verify")
    assert (verified["verdict"], verified["records"]) == ("exact", exact["records"])
    assert [part["what"] for part in verified["not_compared"]] == ["move"] * PARTITIONS
    status = reo(clusters, topic, "status").stdout
    assert f"moved       {topic}-0 moved on " in status
    assert "A start would stop now" in status
    for words in (move, ("cutover", "plan")):
        moved = as_json(clusters, topic, *words)["moved"]
        assert {row["partition"]: row["source_offset"] for row in moved} == ends
    assert "there is nothing left to move" in reo(clusters, topic, *move).stdout
    stopped(start(topic, "deduplicator"), 38, "MoveRefused", f"{topic}-", " moved on ")
    clusters.source.write(topic, make_records(range(1), 1))
    assert "the source has 1 offsets more since" in reo(clusters, topic, "cutover", "plan").stdout
    refused = reo(clusters, topic, "cutover", "back", exit_code=38)
    assert f"records were written to {topic}-0 at the source after the move" in refused.stderr


def test_there_and_back_twice(clusters: Clusters, topic: str, start: Start, tmp_path: Path) -> None:
    """An idempotent producer and a consumer move with the topic four times, while both go on
    otherwise: each number is at the active cluster once, in order, and was processed once.
    """
    clusters.source.create(topic, PARTITIONS)
    pair, running = clusters, Applications(topic, tmp_path)
    running.begin(clusters.source.address, "earliest")
    for leg in range(4):
        service = start_copy(pair, topic, start)
        wait_for_frontiers(service, PARTITIONS)
        with moving.relay_records(pair, topic):
            running.wait_for_more()
            if leg == 1:  # once more: what runs by now is left alone
                assert "begins with the first" in reo(clusters, topic, "cutover", "back").stdout
            moved = run_cutover(pair, topic, service, running)
        assert "the topics have moved" in moved
        running.begin(pair.destination.address, "error")
        running.wait_for_more()
        if leg == 1:
            refused = reo(clusters, topic, "cutover", "back", exit_code=38)
            assert "these topics have moved back" in refused.stderr
        if leg < 3:
            back = reo(pair, topic, "cutover", "back").stdout
            assert "the copy in the other direction begins with the first of them" in back
            pair = Clusters(pair.destination, pair.source)
    written = running.wait_for_all()
    expected = {
        partition: [str(number) for number in range(partition, written, PARTITIONS)]
        for partition in range(PARTITIONS)
    }
    seen = placed(pair.destination, topic, begins=dict.fromkeys(range(PARTITIONS), 0))
    assert {
        partition: [(record.value or b"").decode() for _, record in records]
        for partition, records in seen.items()
    } == expected
    assert moving.lines_by_partition(running.processed) == expected
