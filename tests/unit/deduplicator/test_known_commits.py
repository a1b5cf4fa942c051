"""The frontiers that a worker knows and the group may have lost: it deletes them together with an
intermediate topic. On a real broker: `tests/broker/test_recreated_intermediate.py`.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from common import clock
from common.errors import ClusterUnreachable, HangingTransaction
from common.frontier import Frontier
from common.kafka import partition_offsets
from common.kafka.partition_offsets import GroupCommit
from common.routes import Route, TopicPartition
from common.settings import load
from deduplicator.frontiers.committed_frontiers import WorkerGroup
from deduplicator.frontiers.frontier_store import LoadedFrontiers
from deduplicator.frontiers.start import PartitionStarter
from deduplicator.partition import Partition
from deduplicator.partitions import Partitions
from deduplicator.transactions.transaction_failures import TransactionFailed
from deduplicator.worker import CHECK_COMMITS_S, LostCommits
from tests.unit.common.settings.test_settings import GOOD
from tests.unit.deduplicator.test_rebalance import FIRST, FRONTIER, SECOND, Stand

BEFORE, AFTER = (replace(FRONTIER, source_offset=offset) for offset in (6, 8))
MAPPED = Route("t", "t", "t-proxy", "key")
"""Of whose partitions only what is certain is known."""


def make_partition(tp: TopicPartition, frontier: Frontier = BEFORE) -> Partition:
    """With this frontier."""
    return Partition(tp, MAPPED, frontier.source_offset + 1, frontier)


def commit(partition: Partition, frontier: Frontier = AFTER) -> None:
    """In a transaction, which is certainly committed."""
    partition.frontier = frontier
    partition.on_committed()


def create_starter(commits: dict[TopicPartition, GroupCommit], **group: Any) -> PartitionStarter:
    """With these commits in the group."""
    store = SimpleNamespace(
        list_started_topics=set, load_frontiers=lambda _: LoadedFrontiers(commits, frozenset())
    )
    return PartitionStarter(load(GOOD), {}, cast(Any, SimpleNamespace(**group)), cast(Any, store))


def test_the_newest_commit_is_known() -> None:
    """Of partitions that are started again because the group has lost it."""
    partitions, first = Partitions(), make_partition(FIRST)
    partitions.start([first, make_partition(SECOND)])
    commit(first)
    partitions.start_again([FIRST])
    assert partitions.list_known() == {FIRST: AFTER}
    assert partitions.waiting.keys() == {FIRST}
    assert partitions.has_revoked
    partitions.start([make_partition(FIRST, AFTER)])
    assert partitions.list_known() == {}
    partitions.on_revoked([SECOND, FIRST])
    partitions.on_assigned([SECOND, FIRST])
    assert partitions.list_known() == {FIRST: AFTER, SECOND: BEFORE}


def test_partitions_of_a_halted_route_are_held() -> None:
    """Neither started nor waiting, whether they were started, waited or come later; resumed, they
    are started as after an assignment, and what was certain of them is known. What is revoked
    meanwhile is remembered.
    """
    partitions, halted, none = Partitions(), frozenset({FIRST.topic}), frozenset[str]()
    other = TopicPartition("other-proxy", 0)
    partitions.start([make_partition(FIRST), make_partition(other)])
    partitions.on_assigned([SECOND])
    assert partitions.hold(halted)
    assert partitions.assigned.keys() == {other}
    assert partitions.held.keys() == {FIRST, SECOND}
    assert not partitions.waiting
    assert not partitions.hold(halted)
    partitions.on_revoked([SECOND])
    partitions.on_assigned([SECOND])
    assert partitions.held.keys() == {FIRST, SECOND}
    assert sorted(partitions.list_all()) == sorted([FIRST, SECOND, other])
    assert not partitions.hold(none)
    assert partitions.waiting.keys() == {FIRST, SECOND}
    assert not partitions.held
    assert partitions.list_known() == {FIRST: BEFORE}
    partitions.hold(halted)
    partitions.on_revoked([FIRST])
    assert partitions.remembered.keys() == {FIRST}
    partitions.on_in_doubt()
    assert partitions.held.keys() == {SECOND}


@pytest.mark.parametrize("event", ["on_assigned", "on_revoked"])
def test_what_another_worker_can_have_moved_is_only_remembered(event: str) -> None:
    """A process that stood still can learn at once that its partition was lost and is its own
    again. A commit that was on its way when the partition was revoked is remembered, too.
    """
    partitions, first = Partitions(), make_partition(FIRST)
    partitions.on_assigned([FIRST, SECOND], 4)
    partitions.start([first, make_partition(SECOND)])
    getattr(partitions, event)([FIRST])
    assert FIRST not in partitions.assigned
    commit(first)
    assert partitions.remembered == {FIRST: (first, 4)}
    partitions.on_revoked([FIRST])
    assert partitions.remembered == {FIRST: (first, 4)}, "it is not forgotten at the second time"
    partitions.on_assigned([FIRST], 5)
    assert partitions.list_known() == {FIRST: AFTER}
    partitions.start([make_partition(FIRST)])
    assert partitions.remembered == {}


def test_what_a_round_has_decided_is_dropped_with_its_partition() -> None:
    """What is remembered of it is only what it has committed."""
    partitions, first = Partitions(), make_partition(FIRST)
    partitions.start([first])
    first.get_decisions()
    assert partitions.list_decided() == [first]
    partitions.on_revoked([FIRST])
    assert (partitions.list_decided(), first.decisions) == ([], None)


def test_a_transaction_in_doubt_leaves_nothing_certain() -> None:
    """More may be committed than this worker knows, also of a partition that was revoked while the
    commit was on its way, or that waits. What is loaded stays: nobody else moves it.
    """
    third = SECOND._replace(partition=2)
    partitions, loaded = Partitions(), make_partition(third)
    partitions.on_assigned([FIRST, SECOND, third], 4)
    partitions.start([make_partition(FIRST), make_partition(SECOND), make_partition(third, AFTER)])
    partitions.on_assigned([SECOND], 4)
    partitions.start_again([third])
    partitions.on_loaded([loaded])
    assert partitions.list_known() == {SECOND: BEFORE, third: AFTER}
    partitions.on_in_doubt()
    assert partitions.waiting.keys() == {FIRST, SECOND, third}
    assert (partitions.assigned, partitions.list_known()) == ({}, {})
    assert partitions.list_loaded() == [loaded]
    remembered = partitions.remembered.items()
    assert {tp: (one.partition.committed, one.generation) for tp, one in remembered} == {
        FIRST: (BEFORE, None),
        SECOND: (BEFORE, None),
        third: (AFTER, None),
    }


@pytest.mark.parametrize(("generation", "is_certain"), [(4, True), (5, True), (6, False)])
def test_in_the_next_generation_nobody_else_can_have_had_it(
    generation: int, is_certain: bool
) -> None:
    """A partition is assigned once in each: between the two in which this worker has it there is
    none in which another one can have copied.
    """
    partitions = Partitions()
    partitions.on_assigned([FIRST, SECOND], 4)
    partitions.start([make_partition(FIRST), make_partition(SECOND)])
    partitions.on_revoked([FIRST, SECOND])
    partitions.on_assigned([FIRST], generation)
    assert partitions.list_known() == ({FIRST: BEFORE} if is_certain else {})


@pytest.mark.parametrize("generation", [5, 6], ids=["certain", "remembered"])
@pytest.mark.parametrize("mapping", ["same", "key"])
def test_what_is_remembered_is_believed_where_it_can_be_compared(
    mapping: str, generation: int
) -> None:
    """With the records of the destination: on a route that is one to one. On any other, only what
    is certain.
    """
    stand = Stand()
    stand.route = Route("t", "t", "t-proxy", mapping)
    stand.happens("on_assign", FIRST, SECOND)
    stand.loop.run_round()
    assert stand.known == {}
    stand.happens("on_revoke", FIRST, SECOND)
    stand.loop.run_round()
    stand.client.generation = generation
    stand.happens("on_assign", FIRST)
    stand.loop.run_round()
    assert stand.known.keys() == ({FIRST} if generation == 5 or mapping == "same" else set())


def test_a_failed_transaction_is_not_certain() -> None:
    """Of a failed transaction it is not known whether it is committed."""
    stand = Stand()
    stand.happens("on_assign", FIRST)
    stand.loop.run_round()

    def consume(_: float) -> None:
        raise TransactionFailed("no answer")

    stand.loop.round_input.consume = cast(Any, consume)
    stand.loop.start_waiting = cast(Any, lambda: True)
    stand.loop.run_round()
    assert stand.partitions.waiting.keys() == {FIRST}
    assert stand.partitions.remembered[FIRST].generation is None


def test_what_the_worker_knows_stands_in_for_what_the_group_has_lost() -> None:
    """With its topic; then it is committed again, and the new topic is read from its beginning.
    Where the group has a commit, that counts.
    """
    commits = {FIRST: GroupCommit(11, FRONTIER)}
    starter = create_starter(commits)
    assert starter._load_frontiers([FIRST, SECOND], {FIRST: BEFORE, SECOND: AFTER}) == (
        {FIRST: GroupCommit(11, FRONTIER), SECOND: GroupCommit(0, AFTER)},
        {SECOND},
    )


def find_lost(commits: list[TopicPartition], topics: list[str]) -> list[TopicPartition]:
    """With these commits in the group, and these topics on the cluster."""

    def list_commits(topic_partitions: Any, require_stable: bool) -> dict[TopicPartition, int]:
        assert not require_stable, "it would wait for this worker's own transaction"
        return {tp: 1 for tp in topic_partitions if tp in commits}

    starter = create_starter(
        {},
        group=SimpleNamespace(list_commits=list_commits),
        describe_topics=lambda names: {name: None for name in names if name in topics},
    )
    return starter.find_lost_commits([FIRST, SECOND])


def test_lost_commits_are_found_when_their_topic_is_there() -> None:
    """A commit for a topic that does not exist would be refused."""
    assert find_lost([FIRST, SECOND], ["t-proxy"]) == []
    assert find_lost([FIRST], ["t-proxy"]) == [SECOND]
    assert find_lost([], ["t-proxy"]) == [FIRST, SECOND]
    assert find_lost([], []) == []


@pytest.mark.parametrize("error", [ClusterUnreachable("no"), HangingTransaction("no")])
def test_no_answer_is_no_loss(error: Exception) -> None:
    """It is asked again later."""

    def list_commits(*_: object, **__: object) -> None:
        raise error

    starter = create_starter({}, group=SimpleNamespace(list_commits=list_commits))
    assert starter.find_lost_commits([FIRST]) == []


def test_lost_commits_are_looked_for_regularly(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is lost is started again, and only that."""
    now_s = 100.0
    monkeypatch.setattr(clock, "monotonic", lambda: now_s)
    partitions, asked = Partitions(), list[list[TopicPartition]]()
    partitions.start([make_partition(FIRST), make_partition(SECOND, AFTER)])

    def find_lost_commits(topic_partitions: Any) -> list[TopicPartition]:
        asked.append(sorted(topic_partitions))
        return [SECOND]

    check = LostCommits(cast(Any, SimpleNamespace(find_lost_commits=find_lost_commits)), partitions)
    check.check()
    assert asked == []
    now_s += CHECK_COMMITS_S
    check.check()
    check.check()
    assert asked == [[FIRST, SECOND]]
    assert partitions.assigned.keys() == {FIRST}
    assert partitions.waiting.keys() == {SECOND}
    assert partitions.list_known() == {SECOND: AFTER}


def test_a_commit_that_is_lost_between_two_requests_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The group's coordinator deletes it with its topic. What an open transaction does not hold up
    is read of other workers' partitions only: of its own it can be an older one.
    """
    committed = GroupCommit(5, FRONTIER)
    answers = {"commit reader": {FIRST: committed, SECOND: committed}, "reader": {}}
    monkeypatch.setattr(
        partition_offsets,
        "read_commits",
        lambda client, tps: {tp: answers[client][tp] for tp in tps if tp in answers[client]},
    )
    group = SimpleNamespace(
        liveness=Mock(),
        reader="reader",
        commit_reader="commit reader",
        list_partitions=lambda _: [FIRST, SECOND],
    )
    loaded = WorkerGroup.load_commits(cast(Any, group), [FIRST.topic], [FIRST])
    assert loaded == {SECOND: committed}
