"""`reo cutover` of a live topic, on real brokers: the plan sees its producer, and it moves with its
producer and its group; no record is lost, none is processed twice.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from common import clock
from common import settings as reo_settings
from common.errors import MoveRefused
from common.routes import TopicPartition
from reo.migration.cutover_plan import CutoverPlan
from reo.migration.moving_topics import MovingTopics
from tests.broker.test_cutover import QUICK
from tests.conftest import Start
from tests.harness import moving
from tests.harness.commands import COMMAND_S
from tests.harness.compared_sides import wait_for_markers
from tests.harness.kafka import ROOT, Clusters, make_records, until
from tests.harness.service import build_environment
from tests.harness.stage_one import wait_for_frontiers
from tests.harness.transactional_copy import PARTITIONS, placed
from tools.demo import fair_share

ZERO = dict.fromkeys(range(PARTITIONS), 0)


def values(clusters: Clusters, topic: str, side: str) -> dict[int, list[str]]:
    """What a reader of the topic sees, when its last commit is written."""
    cluster = clusters.source if side == "source" else clusters.destination
    wait_for_markers(cluster, topic)
    found = placed(cluster, topic, begins=ZERO)
    return {
        partition: [(record.value or b"").decode() for _, record in records]
        for partition, records in found.items()
    }


EVERY_LINE = (
    "1 waiting",
    "1 no record",
    "2 the copy",
    "3 the copy",
    "4 waiting",
    "4 no group",
    "5 waiting",
    "5 the service",
    "6 the offsets",
)


def run_until_moved(
    environment: dict[str, str],
    resume: str,
    kill_at: Sequence[str],
    actions: dict[str, Callable[[], object]],
) -> str:
    """Begin the command again and again: it is killed at each of these lines once, and at others
    something else happens once. Returns what the last one prints, which goes through.

    It may be refused before: a producer that stands still for longer than QUICK is taken for one
    that has stopped, until it writes again. After step 5 it waits for nothing: the topics may have
    moved before the kill arrives, and then it says no line of them again.
    """
    left, said = list(kill_at), list[str]()
    for _ in range(2 * len(kill_at) + 1):
        command = subprocess.Popen(
            [sys.executable, "-m", "reo", "cutover", "run", "--resume", resume, *QUICK],
            cwd=ROOT,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert command.stderr
        for line in command.stderr:
            said.append(line)
            if left and line.startswith(left[0]):
                command.kill()
                break
            for words in [words for words in actions if line.startswith(words)]:
                actions.pop(words)()
        result, errors = fair_share.communicate(command, COMMAND_S)
        assert command.returncode in (0, -9, MoveRefused.exit_code), "".join(said) + errors
        if command.returncode == -9:
            left.pop(0)
        elif command.returncode == 0:
            break
    assert (command.returncode, actions) == (0, {}), "".join(said)
    assert set(left) <= {"5 the service", "6 the offsets"}, "".join(said)
    return result


@pytest.mark.long  # tests/broker/test_cutover.py has each step
@pytest.mark.parametrize(
    "kill_at",
    [("3 the copy", "6 the offsets"), EVERY_LINE],
    ids=["some", "every"],
)
def test_a_live_topic_moves_while_the_command_is_killed(
    clusters: Clusters, topic: str, start: Start, tmp_path: Path, kill_at: tuple[str, ...]
) -> None:
    """The command is killed at these of its steps and begun again; producer, consumers and service
    are stopped when it waits for them.
    """
    clusters.source.create(topic, PARTITIONS)
    service = start(topic, "deduplicator")
    wait_for_frontiers(service, PARTITIONS)
    group, processed, resume = (
        f"{topic}-group",
        tmp_path / "processed",
        str(tmp_path / "verified.json"),
    )
    with moving.relay_records(clusters, topic):
        producer = moving.start("produce", clusters.source.address, topic)
        consumer = moving.start(
            "consume", clusters.source.address, topic, group, str(processed), "earliest"
        )
        until(
            lambda: len(moving.lines_by_partition(processed)) == PARTITIONS,
            "the group reads at the source",
        )
        actions: dict[str, Callable[[], object]] = {
            "1 waiting": lambda: moving.end(producer),
            "4 waiting": lambda: moving.end(consumer),
            "5 waiting": service.stop,
        }
        environment = {"PATH": os.environ["PATH"]} | build_environment(clusters, topic, {})
        result = run_until_moved(environment, resume, kill_at, actions)
    # the second, when the kill came after the record of the move was written
    assert "the topics have moved" in result or "there is nothing left to move" in result
    assert values(clusters, topic, "source") == values(clusters, topic, "destination")
    producer = moving.start("produce", clusters.destination.address, topic)
    consumer = moving.start(
        "consume", clusters.destination.address, topic, group, str(processed), "error"
    )
    until(
        lambda: (
            clusters.destination.count_offsets(topic) > clusters.source.count_offsets(topic) + 50
        ),
        "the producer writes at the destination",
    )
    moving.end(producer)
    written = values(clusters, topic, "destination")
    until(
        lambda: (
            sum(map(len, moving.lines_by_partition(processed).values()))
            >= sum(map(len, written.values()))
        ),
        "the group reads at the destination",
    )
    moving.end(consumer)
    assert moving.lines_by_partition(processed) == written


def test_the_plan_sees_producers(
    clusters: Clusters, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition that grows between two measurements, and an open transaction, are producers that
    still write.
    """
    clusters.source.create(topic, PARTITIONS)
    clusters.destination.create(topic, PARTITIONS)
    moving = MovingTopics(reo_settings.load(build_environment(clusters, topic, {})), ".*")
    producer = clusters.source.producer(transactional_id=f"{topic}-open")

    def write(_: float) -> None:
        clusters.source.write(topic, make_records(range(10), 1))
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, b"open", partition=1)
        assert producer.flush(30) == 0

    # The plan's own clock: requests of the same process pause by `common.clock`, too.
    plans_clock = SimpleNamespace(sleep=write, monotonic=clock.monotonic)
    monkeypatch.setattr("reo.migration.cutover_plan.clock", plans_clock)
    plan = CutoverPlan(moving, 10.0, None, deny_writes=False)
    monkeypatch.undo()
    producer.abort_transaction(30)
    text = plan.format_text()
    assert f"offsets/s are written; a transaction is open on {topic}-1 from offset 0 on" in text
    assert f"--bootstrap-server {plan.source_servers} describe-producers" in text
    assert plan.growth[TopicPartition(topic, 0)] > plan.growth[TopicPartition(topic, 1)] > 0
    assert plan.estimate_s is None, "records are left and nobody copies them"
