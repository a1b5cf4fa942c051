"""Frontiers that a database or a user's own store keeps, beside the group's commits that repeat
them.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from common.errors import DestinationTruncated
from common.frontier import Frontier
from common.kafka.partition_offsets import GroupCommit
from common.liveness import Liveness
from common.routes import Route, TopicPartition
from common.settings import load
from deduplicator.frontiers import own_frontier_store
from deduplicator.frontiers.frontier_store import merge_group_commits
from deduplicator.frontiers.own_frontier_store import OwnFrontierStore
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
    stored = {TP: (9, make_frontier(-1, epoch).encode())}
    if is_set_back:
        with pytest.raises(DestinationTruncated):
            merge_group_commits(in_group, stored, [TP], "own")
        return
    commits, to_commit_again = merge_group_commits(in_group, stored, [TP], "own")
    assert commits[TP].frontier.source_offset == -1
    assert to_commit_again == {TP}


@pytest.mark.parametrize(
    ("start", "last_source_offset", "started"),
    [
        ("latest", 7, {"t-proxy"}),
        ("latest", -1, set()),
        ("earliest", 7, set()),
    ],
)
def test_a_store_with_records_was_started_before(
    monkeypatch: pytest.MonkeyPatch, start: str, last_source_offset: int, started: set[str]
) -> None:
    """The group has expired. With `latest`, a topic that appeared meanwhile is copied whole only if
    the copy of another one had begun.
    """
    monkeypatch.setattr(
        own_frontier_store,
        "load_store",
        lambda _: SimpleNamespace(last_source_offset=lambda _: last_source_offset),
    )
    consumer_group = SimpleNamespace(
        liveness=Liveness("test"),
        list_started_topics=set,
        describe_stored_destinations=lambda routes, _: {
            route.intermediate_topic: SimpleNamespace(partitions=1) for route in routes
        },
    )
    store = OwnFrontierStore(
        load(GOOD | {"REO_SOURCE_START": start}),
        {"t-proxy": Route("t", "t", "t-proxy")},
        cast(Any, consumer_group),
    )
    assert store.list_started_topics() == started


def test_a_stored_position_is_committed_again() -> None:
    """The group's commits are gone: with the topic, or by themselves. Whether the topic still has
    that position is the consumer's matter.
    """
    frontier = make_frontier(5, 5)
    commits, to_commit_again = merge_group_commits({}, {TP: (9, frontier.encode())}, [TP], "own")
    assert commits == {TP: GroupCommit(9, frontier)}
    assert to_commit_again == {TP}


def test_a_frontier_of_version_1_is_taken_over() -> None:
    """As the group's is; the next transaction stores one of version 2."""
    text = (
        '{"v":1,"f":5,"e":7,"l":[5,3,1],"h":null,"i":"0123456789abcdef","c":1,"t":"own","d":5,'
        '"n":0,"r":null,"w":null,"p":2,"m":"id","k":null}'
    )
    commits, _ = merge_group_commits({}, {TP: (9, text)}, [TP], "own")
    assert commits[TP].frontier == make_frontier(5, 7)
