"""Frontiers that a database or a user's own store keeps, beside the group's commits that repeat
them.
"""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from common.errors import DestinationTruncated, ForeignWriter
from common.frontier import Frontier
from common.kafka.partition_offsets import GroupCommit
from common.routes import Route, TopicPartition
from common.settings import load
from deduplicator.destination import Output
from deduplicator.frontiers.stored_frontiers import StoredFrontiers, merge_group_commits
from deduplicator.own_destination import Position
from tests.unit.common.settings.test_settings import GOOD

TP = TopicPartition("t-proxy", 0)


def make_frontier(frontier: int, epoch: int) -> Frontier:
    """Of the destination `own`."""
    return Frontier(frontier, epoch, "0123456789abcdef", 1, "own", frontier, 0)


@pytest.mark.parametrize(
    ("epoch", "is_set_back"),
    [
        pytest.param(5, True, id="a backup"),
        pytest.param(4, True, id="an older backup"),
        pytest.param(6, False, id="a first frontier that the group has not repeated"),
    ],
)
def test_a_first_frontier_is_no_backup(epoch: int, is_set_back: bool) -> None:
    """The table was dropped, and the worker died between the database's commit and the group's. A
    database that was set back knows no epoch that the group does not know.
    """
    in_group = {TP: GroupCommit(9, make_frontier(5000, 5))}
    stored = {TP: Position(9, make_frontier(-1, epoch).encode())}
    if is_set_back:
        with pytest.raises(DestinationTruncated):
            merge_group_commits(in_group, stored, [TP], "own")
        return
    commits, to_commit_again = merge_group_commits(in_group, stored, [TP], "own")
    assert commits[TP].frontier.source_offset == -1
    assert to_commit_again == {TP}


class ReadOnce(list[TopicPartition]):
    """Partitions that are not searched for each of them."""

    def __contains__(self, _: object) -> bool:
        raise AssertionError("with 5,000 partitions these are 25 million comparisons")


def test_positions_are_merged_without_a_search_for_each() -> None:
    """A start has all partitions in a list."""
    partitions = ReadOnce(TopicPartition("t-proxy", number) for number in range(3))
    in_group = dict.fromkeys(partitions, GroupCommit(9, make_frontier(5000, 5)))
    stored = dict.fromkeys(partitions, Position(9, make_frontier(5000, 5).encode()))
    assert merge_group_commits(in_group, stored, partitions, "own") == (in_group, set())


class OneStore:
    """Answers what a start asks; `last` is the last source offset of every partition."""

    def __init__(self, last: int = -1) -> None:
        self.last = last

    def read_positions(self, topics: set[str]) -> dict[TopicPartition, Position]:
        """One."""
        return {TP: Position(9, make_frontier(5, 5).encode())} if TP.topic in topics else {}

    def last_source_offset(self, _: TopicPartition) -> int:
        """Given."""
        return self.last


def make_stored_frontiers(store: OneStore, **settings: str) -> StoredFrontiers:
    """Of a group that has expired."""
    client = SimpleNamespace(
        store=store,
        identity="own",
        read_only=True,
        ask=lambda _, call: call(),
        has=lambda name: hasattr(store, name),
    )
    group = SimpleNamespace(list_started_topics=set, load_commits=lambda *_: {})
    return StoredFrontiers(
        load(GOOD | {"REO_DESTINATION_CLASS": "a:B"} | settings),
        cast(Any, client),
        {"t-proxy": Route("t", "t", "t-proxy")},
        cast(Any, group),
    )


def test_a_store_with_positions_was_started_before() -> None:
    """With `source.start=latest`, a topic that appeared meanwhile is copied whole only if the copy
    of another one had begun: the group, which has expired, does not tell.
    """
    assert make_stored_frontiers(OneStore()).list_started_topics() == {"t-proxy"}


def test_the_last_record_is_the_one_that_the_frontier_names(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One more is somebody else's, one less is lost; all of them are the owner's to delete."""
    there = TopicPartition("t", 0)
    for last, error in ((5, None), (6, ForeignWriter), (4, DestinationTruncated), (-1, None)):
        stored = make_stored_frontiers(OneStore(last))
        with pytest.raises(error) if error else nullcontext():
            outputs, _ = stored.check_outputs({there: make_frontier(5, 5)})
            assert outputs == {there: Output(5, 0)}
    assert "all records were deleted" in caplog.text


def test_without_positions_nothing_is_asked_of_the_store() -> None:
    """At least once: the group's commits are the frontiers, and the store has `commit` alone."""
    stored = make_stored_frontiers(cast(Any, object()), REO_DESTINATION_GUARANTEE="at-least-once")
    there = TopicPartition("t", 0)
    assert stored.list_started_topics() == set()
    assert stored.load_frontiers([TP]) == ({}, frozenset())
    assert stored.get_end_offsets([there]) == {there: 0}
    assert stored.check_outputs({there: make_frontier(5, 5)}) == ({there: Output(5, 0)}, {})


def test_a_stored_position_is_committed_again() -> None:
    """The group's commits are gone: with the topic, or by themselves. Whether the topic still has
    that position is the consumer's matter.
    """
    frontier = make_frontier(5, 5)
    commits, to_commit_again = merge_group_commits(
        {}, {TP: Position(9, frontier.encode())}, [TP], "own"
    )
    assert commits == {TP: GroupCommit(9, frontier)}
    assert to_commit_again == {TP}


def test_a_frontier_of_version_1_is_taken_over() -> None:
    """As the group's is; the next transaction stores one of version 2."""
    text = (
        '{"v":1,"f":5,"e":7,"l":[5,3,1],"h":null,"i":"0123456789abcdef","c":1,"t":"own","d":5,'
        '"n":0,"r":null,"w":null,"p":2,"m":"id","k":null}'
    )
    commits, _ = merge_group_commits({}, {TP: Position(9, text)}, [TP], "own")
    assert commits[TP].frontier == make_frontier(5, 7)
