"""Whether an intermediate topic is the one that the frontier names
(`deduplicator.intermediate_watch`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any, cast

import pytest

from common import runtime
from common.errors import ClusterUnreachable
from common.frontier import Frontier, RuleState
from common.kafka.consumer_group import Commit
from common.kafka.topics import Topic
from common.routes import TopicPartition
from common.settings import load
from deduplicator.intermediate_watch import (
    CHECK_COMMITS_INTERVAL_S,
    CHECK_INTERVAL_S,
    IntermediateWatch,
)
from deduplicator.loop import Loop
from deduplicator.partitions import AssignedPartition, Partitions
from deduplicator.position_errors import PositionGone
from tests.unit.test_cost_of_a_record import IDENTITY, batch
from tests.unit.test_settings import GOOD

HERE, THERE = TopicPartition("t-proxy", 0), TopicPartition("u-proxy", 0)
FRONTIER = Frontier(
    RuleState(6, 1, None), "0123456789abcdef", 2, "id", -1, 0, intermediate_topic_id="old"
)


class Watched:
    """A worker with one partition of each of two topics, and the ids that the cluster has."""

    def __init__(self) -> None:
        self.ids: dict[str, str] | None = {"t-proxy": "old", "u-proxy": "old"}
        """None: the cluster does not answer."""
        self.requests = 0
        self.committed: set[TopicPartition] | None = {HERE, THERE}
        """None: the coordinator does not answer."""
        self.partitions = Partitions()
        self.partitions.start(
            {HERE: AssignedPartition(0, FRONTIER), THERE: AssignedPartition(5, FRONTIER)}
        )
        self.watch = IntermediateWatch(cast(Any, self), self.partitions)

    @property
    def consumer_group(self) -> Watched:
        """As `PartitionStarter.consumer_group`."""
        return self

    @property
    def group(self) -> Watched:
        """As `ConsumerGroup.group`."""
        return self

    def list_commits(
        self, topic_partitions: Iterable[TopicPartition], require_stable: bool
    ) -> dict[TopicPartition, Commit]:
        """As `Group.list_commits`."""
        assert not require_stable
        if self.committed is None:
            raise ClusterUnreachable("away")
        return {tp: Commit(0, "") for tp in topic_partitions if tp in self.committed}

    def describe_topics(self, names: Collection[str]) -> dict[str, Topic]:
        """Those that exist."""
        self.requests += 1
        if self.ids is None:
            raise ClusterUnreachable("away")
        return {
            name: Topic(name, topic_id, 1, "cluster")
            for name, topic_id in self.ids.items()
            if name in names
        }


def test_a_recreated_topic_is_started_again() -> None:
    """From what the worker knows: the group may have lost it. The other topic's partition goes
    on.
    """
    watched = Watched()
    watched.ids = {"t-proxy": "old", "u-proxy": "new"}
    watched.watch.check()
    assert watched.partitions.waiting == {THERE}
    assert set(watched.partitions.assigned) == {HERE}
    assert watched.partitions.last_committed == {THERE: AssignedPartition(5, FRONTIER)}


@pytest.mark.parametrize("ids", [None, {}], ids=["no answer", "no topic"])
def test_without_an_id_nothing_is_concluded(ids: dict[str, str] | None) -> None:
    """A cluster that does not answer, and a topic that is deleted and not created again yet."""
    watched = Watched()
    watched.ids = ids
    watched.watch.check()
    assert not watched.partitions.waiting
    assert watched.requests == 1


def test_it_is_asked_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in every round."""
    now_s, watched = 100.0, Watched()
    monkeypatch.setattr(runtime, "monotonic", lambda: now_s)
    for _ in range(3):
        watched.watch.check()
    assert watched.requests == 1
    now_s += CHECK_INTERVAL_S
    watched.watch.check()
    assert watched.requests == 2


@pytest.mark.parametrize(
    ("committed", "topics", "started_again"),
    [
        pytest.param({HERE}, {"t-proxy", "u-proxy"}, {THERE}, id="lost"),
        pytest.param({HERE, THERE}, {"t-proxy", "u-proxy"}, set(), id="there"),
        pytest.param(None, {"t-proxy", "u-proxy"}, set(), id="no answer"),
        pytest.param({HERE}, {"t-proxy"}, set(), id="no topic"),
    ],
)
def test_a_frontier_that_the_group_has_lost_is_committed_again(
    monkeypatch: pytest.MonkeyPatch,
    committed: set[TopicPartition] | None,
    topics: set[str],
    started_again: set[TopicPartition],
) -> None:
    """A coordinator that learns late that the old topic was deleted deletes it. This is looked at
    less often.
    """
    now_s = 100.0
    monkeypatch.setattr(runtime, "monotonic", lambda: now_s)
    watched = Watched()
    watched.committed = set()
    now_s += CHECK_INTERVAL_S
    watched.watch.check()
    assert not watched.partitions.waiting
    watched.committed, watched.ids = committed, dict.fromkeys(topics, "old")
    now_s += CHECK_COMMITS_INTERVAL_S
    watched.watch.check()
    assert watched.partitions.waiting == started_again
    assert watched.partitions.last_committed.keys() == started_again


def test_the_first_records_wait_for_the_id() -> None:
    """They are decided with it; without an answer they are read again. Nothing is asked elsewhere
    than at offset 0.
    """
    watched = Watched()
    watched.watch.check_first_records([THERE])
    assert watched.requests == 0
    watched.watch.check_first_records([HERE, THERE])
    assert not watched.partitions.waiting
    watched.ids = None
    with pytest.raises(PositionGone, match="cannot be read"):
        watched.watch.check_first_records([HERE, THERE])
    assert not watched.partitions.waiting
    watched.ids = {"t-proxy": "new"}
    with pytest.raises(PositionGone, match="created again"):
        watched.watch.check_first_records([HERE, THERE])


@pytest.mark.parametrize("topic_id", ["old", "new"])
def test_the_loop_decides_first_records_with_the_id(topic_id: str) -> None:
    """In a new topic they are perhaps those of a run that goes on; nothing of them is decided."""
    watched = Watched()
    watched.ids = {"t-proxy": topic_id}
    frontier = replace(FRONTIER, rule=RuleState(-1, 1, None), source_identity=IDENTITY)
    watched.partitions.start({HERE: AssignedPartition(0, frontier)})
    loop = Loop(load(GOOD), {}, watched.partitions, *[cast(Any, None)] * 4)
    loop.intermediate_watch = watched.watch
    messages = batch(3)
    if topic_id == "new":
        with pytest.raises(PositionGone):
            loop.decide(messages)
        assert not loop.work
    else:
        loop.decide(messages[:1])
        loop.decide(messages[1:])
        assert loop.work[HERE].next_offset == 3
        assert watched.requests == 1
