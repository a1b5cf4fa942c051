"""Partitions whose position is gone, or is one of another topic (`deduplicator.frontiers`)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from common import runtime, source_candidates
from common.errors import FrontierLost
from common.frontier import Frontier, RuleState
from common.kafka import intermediate_records, partition_offsets
from common.kafka.partition_offsets import EndOffset
from common.kafka.topics import Topic
from common.routes import Route, TopicPartition
from common.settings import load
from deduplicator.frontiers.committed_frontiers import TransactionUndecided
from deduplicator.frontiers.frontier_store import LoadedFrontiers
from deduplicator.frontiers.gone_positions import is_recreated, move_to_end
from deduplicator.frontiers.start import PartitionStarter
from deduplicator.partitions import AssignedPartition
from tests.unit.test_settings import GOOD

HERE = TopicPartition("t-proxy", 0)
END, CLOCK_S = 8, 1_700_000_000
FRONTIER = Frontier(
    RuleState(6, 1, None), "0123456789abcdef", 2, "id", -1, 0, intermediate_topic_id="old"
)


class Brokers:
    """Each says another id of the topic, in this order; the last one for ever."""

    def __init__(self, *ids: str, partitions: int = 1, **settings: str) -> None:
        self.ids = list(ids)
        self.partitions = partitions
        self.settings = load(GOOD | settings)
        self.admin = self.reader = None

    def describe_intermediates(self, names: Collection[str]) -> dict[str, Topic]:
        """As `ConsumerGroup`."""
        topic_id = self.ids.pop(0) if len(self.ids) > 1 else self.ids[0]
        return {name: Topic(name, topic_id, self.partitions, "cluster") for name in names}


@pytest.fixture(autouse=True)
def ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The intermediate partition has the offsets 0 to END - 1, and no origin can be read."""
    monkeypatch.setattr(partition_offsets, "list_beginning_offsets", lambda *_: {HERE: 0})
    monkeypatch.setattr(partition_offsets, "list_stable_ends", lambda *_: {HERE: EndOffset(END, 3)})
    monkeypatch.setattr(intermediate_records, "read_last_origins", lambda *_: {})
    monkeypatch.setattr(runtime, "sleep", lambda _: None)


def move(brokers: Brokers, next_offset: int) -> tuple[set[TopicPartition], AssignedPartition]:
    """The partitions that are moved, and the state afterwards."""
    state = AssignedPartition(next_offset, FRONTIER)
    moved = move_to_end(
        cast(Any, brokers),
        {HERE: state},
        brokers.describe_intermediates({HERE.topic}),
        set(),
        [1],
        lambda: CLOCK_S,
    )
    return moved, state


@pytest.mark.parametrize(
    ("known", "now", "expected"),
    [
        ("old", "old", False),
        ("old", "new", True),
        (None, "new", False),  # a frontier of an earlier version
        ("old", "", False),  # a broker before 2.8
    ],
)
def test_only_two_ids_that_are_known_can_differ(
    known: str | None, now: str, expected: bool
) -> None:
    """Otherwise an upgrade of reo or of a broker would look like a recreated topic."""
    frontier = replace(FRONTIER, intermediate_topic_id=known)
    assert is_recreated(frontier, Topic("t-proxy", now, 1, "cluster")) is expected


@pytest.mark.parametrize("next_offset", [0, END + 1])
def test_a_position_of_another_topic_is_moved_to_the_end(next_offset: int) -> None:
    """With a raised epoch, also where the new topic has this offset; the frontier stays."""
    moved, state = move(Brokers("new"), next_offset)
    assert moved == {HERE}
    assert state.next_offset == END
    assert state.frontier.rule.epoch > FRONTIER.rule.epoch
    assert state.frontier.rule.frontier == FRONTIER.rule.frontier
    assert state.frontier.intermediate_topic_id == "new"


@pytest.mark.parametrize("ids", [("old",), ("new", "old")], ids=["same", "a broker is behind"])
def test_a_position_of_the_same_topic_stays(ids: tuple[str, ...]) -> None:
    """No topic is another one on one broker's word."""
    moved, state = move(Brokers(*ids), 5)
    assert not moved
    assert (state.next_offset, state.frontier.rule) == (5, FRONTIER.rule)
    assert state.frontier.intermediate_topic_id == "old"


@pytest.mark.parametrize("next_offset", [1, END])
def test_a_position_that_both_topics_have_is_a_stop(next_offset: int) -> None:
    """Records of both can have been read. Nothing is changed."""
    with pytest.raises(FrontierLost, match=f"before offset {next_offset}: .*`reo recover`"):
        move(Brokers("new"), next_offset)


@pytest.mark.parametrize("ids", [("old", "new"), ("new", "new", "newer")], ids=["one", "two"])
def test_an_end_gets_no_other_topics_id(ids: tuple[str, ...]) -> None:
    """A position at the end of a new topic, with the old one's id, would be a wrong stop at
    the next look. The start is tried again.
    """
    with pytest.raises(TransactionUndecided, match="created again"):
        move(Brokers(*ids), END + 1)


def test_append_accepts_it(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and moved."""
    moved, _ = move(Brokers("new", REO_DEDUPLICATOR_WITHOUT_FRONTIER="append"), 5)
    assert moved == {HERE}
    assert "records of t-proxy-0 can be left out of the copy" in caplog.text


def test_a_topic_with_fewer_partitions_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was created again by somebody else: it gets its partitions, and the start is tried again
    after a poll, because the group may assign others meanwhile.
    """
    prepared = []
    monkeypatch.setattr(source_candidates, "try_candidates", lambda *_: prepared.append(True))
    brokers = Brokers("new", partitions=1)
    cast(Any, brokers).liveness = SimpleNamespace(beat=None)
    store = SimpleNamespace(
        list_started_topics=set,
        load_frontiers=lambda _: LoadedFrontiers({}, set()),
        describe_destinations=lambda _: {},
    )
    starter = PartitionStarter(
        brokers.settings,
        {HERE.topic: Route("t", "t", HERE.topic)},
        cast(Any, brokers),
        cast(Any, store),
    )
    with pytest.raises(TransactionUndecided):
        starter.start_partitions([TopicPartition(HERE.topic, 1)])
    assert prepared == [True]
