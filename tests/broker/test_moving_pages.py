"""The pages about moving, walked through on real brokers: the commands that are run are those on
the page, in their order.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.broker.test_rival import needs_its_jars
from tests.conftest import Start
from tests.harness.commands import COMMAND_S, reo
from tests.harness.group_offsets import commit, committed
from tests.harness.kafka import COPY_S, ROOT, Clusters
from tests.harness.moving import relay_records
from tests.harness.moving_pages import PAGES, commands_of
from tests.harness.producing import produce_records
from tests.harness.service import Service, build_environment
from tests.harness.stage_one import wait_for_frontiers
from tests.harness.transactional_copy import PARTITIONS, placed, write_transactions
from tools.bench.mirrormaker import MirrorMaker
from tools.demo import fair_share

TOPIC, GROUP = "orders", "billing"
"""As the pages call them."""


class Walk:
    """Runs the commands of a page. `reo run` starts the service: stage two, with a stage one of one
    line beside it.
    """

    def __init__(self, clusters: Clusters, topic: str, start: Start, folder: Path) -> None:
        self.clusters, self.topic, self.folder, self.start = clusters, topic, folder, start
        self.group = f"{topic}-{GROUP}"
        self.service: Service | None = None
        self.stage_one = ExitStack()
        self.output: dict[str, str] = {}

    def walk(self, name: str, before: dict[str, Callable[[], object]]) -> None:
        """All commands in their order; `before` has what a person does before one of them, by its
        first words.
        """
        for words in commands_of(PAGES[name]):
            for begin, action in before.items():
                if " ".join(words).startswith(begin):
                    action()
            given = [
                (
                    str(self.folder / word)
                    if word.endswith(".json")
                    else word.replace(GROUP, self.group)
                )
                for word in words
            ]
            if words == ["run"]:
                self.service = self.start(self.topic, "deduplicator")
                wait_for_frontiers(self.service, PARTITIONS)
                self.stage_one.enter_context(relay_records(self.clusters, self.topic))
                self.clusters.wait_for_copy(self.topic, 1)
            elif words[:2] == ["cutover", "run"]:
                self.output["cutover run"] = self.run_cutover(given)
            else:
                self.output[" ".join(words)] = reo(self.clusters, self.topic, *given).stdout

    def run_cutover(self, words: list[str]) -> str:
        """The service is stopped when the command waits for it."""
        command = subprocess.Popen(
            [sys.executable, "-m", "reo", *words],
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ["PATH"]} | build_environment(self.clusters, self.topic, {}),
        )
        assert command.stderr
        for line in command.stderr:
            if line.startswith("5 waiting") and self.service:
                self.service.stop()
        assert fair_share.wait(command, COMMAND_S) == 0
        assert command.stdout
        return command.stdout.read()


@pytest.fixture
def walk(clusters: Clusters, topic: str, start: Start, tmp_path: Path) -> Iterator[Walk]:
    """Both clusters, a source of transactions, and a group that has read some of it."""
    clusters.source.create(topic, PARTITIONS)
    write_transactions(clusters.source, topic)
    walk = Walk(clusters, topic, start, tmp_path)
    commit(clusters.source, topic, walk.group, dict.fromkeys(range(PARTITIONS), 5))
    with walk.stage_one:
        yield walk


def read_rest_at_source(walk: Walk) -> dict[int, list[object]]:
    """What the group has not read."""
    begins = committed(walk.clusters.source, walk.topic, walk.group)
    return {
        partition: [record for _, record in records]
        for partition, records in placed(walk.clusters.source, walk.topic, begins=begins).items()
    }


def read_rest_at_destination(walk: Walk) -> dict[int, list[object]]:
    """What a consumer of the group would read."""
    return {
        partition: [record for _, record in records]
        for partition, records in placed(walk.clusters.destination, walk.topic, walk.group).items()
    }


@pytest.mark.long
def test_move_a_cluster(walk: Walk) -> None:
    """The group reads on before the move, and at the destination it has to read exactly what it has
    not read at the source.
    """

    def write_at_destination() -> None:
        assert read_rest_at_destination(walk) == read_rest_at_source(walk)
        write_transactions(walk.clusters.destination, walk.topic)

    walk.walk(
        "move-cluster",
        {
            "cutover plan": lambda: commit(
                walk.clusters.source, walk.topic, walk.group, {0: 8, 1: 10}
            ),
            "cutover back": write_at_destination,
        },
    )
    assert "the topics have moved" in walk.output["cutover run"]
    assert "copy in the other direction begins" in walk.output["cutover back"]


def copy_like_mirrormaker(walk: Walk) -> None:
    """As another program that copies in transactions of its own: visible records, to the same
    partition, with their headers and timestamps.
    """
    walk.clusters.destination.create(walk.topic, PARTITIONS)
    producer = walk.clusters.destination.producer(transactional_id=f"{walk.topic}-copy")
    producer.init_transactions(30)
    records = placed(walk.clusters.source, walk.topic, begins=dict.fromkeys(range(PARTITIONS), 0))
    for partition, found in records.items():
        for first in range(0, len(found), 3):
            producer.begin_transaction()
            produce_records(
                producer,
                walk.topic,
                [(partition, record) for _, record in found[first : first + 3]],
            )
            producer.commit_transaction(30)


def copy_by_mirrormaker(walk: Walk) -> None:
    """The real one, until it has copied all; then it is stopped."""
    rival = MirrorMaker(
        walk.folder / "mm2",
        walk.clusters.source.address,
        walk.clusters.destination.address,
        walk.topic,
        heap_mb=512,
    ).start()
    try:
        records = sum(
            map(
                len,
                placed(
                    walk.clusters.source, walk.topic, begins=dict.fromkeys(range(PARTITIONS), 0)
                ).values(),
            )
        )
        walk.clusters.wait_for_copy(walk.topic, records, COPY_S)
    finally:
        rival.kill()


@pytest.mark.parametrize(
    "copied",
    [
        copy_like_mirrormaker,
        pytest.param(copy_by_mirrormaker, marks=[pytest.mark.long, needs_its_jars]),
    ],
)
def test_from_mirrormaker(walk: Walk, copied: Callable[[Walk], None]) -> None:
    """What it has copied is found and compared, and the copy goes on behind it: exact, with what
    was written since.
    """
    copied(walk)
    write_transactions(walk.clusters.source, walk.topic, 5000)
    walk.walk("from-mirrormaker", {})
    assert "committed; start the service" in walk.output["recover --apply"]
    assert read_rest_at_destination(walk) == read_rest_at_source(walk)
