"""Frontiers that a database or a user's own store keeps, beside the group's commits that repeat
them.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from common.errors import DestinationTruncated
from common.frontier import Frontier, RuleState
from common.kafka.partition_offsets import GroupCommit
from common.liveness import Liveness
from common.routes import Route, TopicPartition
from common.settings import load
from deduplicator.frontiers import own_frontier_store
from deduplicator.frontiers.frontier_store import merge_group_commits
from deduplicator.frontiers.own_frontier_store import OwnFrontierStore
from tests.unit.test_settings import GOOD

TP = TopicPartition("t-proxy", 0)


def make_frontier(frontier: int, epoch: int) -> Frontier:
    """Of the destination `own`."""
    return Frontier(RuleState(frontier, epoch, None), "0123456789abcdef", 1, "own", frontier, 0)


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
    assert commits[TP].frontier.rule.frontier == -1
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


@pytest.mark.parametrize(
    ("topic_id", "position"),
    [
        pytest.param("id", 9, id="the start compares the topic"),
        pytest.param(None, -1, id="an earlier version's, perhaps of a deleted topic"),
    ],
)
def test_a_position_counts_where_its_topic_is_known(topic_id: str | None, position: int) -> None:
    """The group's commits are gone: with the topic, or by themselves."""
    frontier = replace(make_frontier(5, 5), intermediate_topic_id=topic_id)
    commits, to_commit_again = merge_group_commits({}, {TP: (9, frontier.encode())}, [TP], "own")
    assert commits == {TP: GroupCommit(position, frontier)}
    assert to_commit_again == {TP}
