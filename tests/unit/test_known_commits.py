"""The frontiers that a worker knows and the group may have lost: they are deleted with an
intermediate topic.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from common.kafka import partition_offsets
from common.kafka.partition_offsets import GroupCommit
from common.routes import TopicPartition
from deduplicator.frontiers.committed_frontiers import ConsumerGroup
from deduplicator.partitions import AssignedPartition, Partitions
from deduplicator.position_errors import PositionGone
from deduplicator.transactions.transaction_failures import TransactionFailed
from tests.unit.test_raised_epochs import OLD, OTHER, OWN, Group
from tests.unit.test_rebalance import FIRST, SECOND, Stand


@pytest.mark.parametrize(
    ("failed", "known"),
    [(PositionGone("gone"), {FIRST, SECOND}), (TransactionFailed("no"), set())],
    ids=["position", "transaction"],
)
def test_a_gone_position_leaves_what_the_worker_knows(
    monkeypatch: pytest.MonkeyPatch, failed: Exception, known: set[TopicPartition]
) -> None:
    """The group may have lost the frontiers of all partitions with their topic. After a failed
    transaction only the group knows them.
    """
    stand = Stand(True)
    stand.happens("on_assign", FIRST, SECOND)
    stand.loop.run_round()

    def consume(*_: object) -> None:
        raise failed

    monkeypatch.setattr(stand.loop.intermediate, "consume_batches", consume)
    stand.loop.run_round()
    assert stand.known.keys() == known


def test_what_the_worker_knows_stands_in_for_what_the_group_has_lost() -> None:
    """With its topic; then it is committed again. Where the group has a commit, that counts."""
    group, known = Group(), {OWN: AssignedPartition(5, OLD), OTHER: AssignedPartition(3, OLD)}
    assert group.starter._load_frontiers([OWN, OTHER], known) == (group.commits, set())
    group.commits = {}
    assert group.starter._load_frontiers([OWN, OTHER], known) == (
        {OWN: GroupCommit(5, OLD), OTHER: GroupCommit(3, OLD)},
        {OWN, OTHER},
    )


@pytest.mark.parametrize("event", ["on_assigned", "on_revoked"])
def test_nothing_is_known_of_what_another_worker_can_have_had(event: str) -> None:
    """A process that stood still can learn at once that its partition was lost and is its own
    again.
    """
    partitions = Partitions()
    partitions.start({OWN: AssignedPartition(5, OLD), OTHER: AssignedPartition(3, OLD)})
    partitions.start_again([OWN, OTHER], is_committed=True)
    assert partitions.last_committed.keys() == {OWN, OTHER}
    getattr(partitions, event)([OWN])
    assert partitions.last_committed.keys() == {OTHER}
    partitions.start({OTHER: AssignedPartition(3, OLD)})
    assert not partitions.last_committed
    partitions.start_again([OTHER], is_committed=False)
    assert not partitions.last_committed


def test_a_commit_that_is_lost_between_two_requests_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The group's coordinator deletes it with its topic. What an open transaction does not hold up
    is read of other workers' partitions only: of its own it can be an older one.
    """
    commit, other = GroupCommit(5, OLD), TopicPartition(OWN.topic, OWN.partition + 1)
    answers = {"commit reader": {OWN: commit, other: commit}, "reader": {}}
    monkeypatch.setattr(
        partition_offsets,
        "read_commits",
        lambda client, tps: {tp: answers[client][tp] for tp in tps if tp in answers[client]},
    )
    group = SimpleNamespace(
        liveness=Mock(),
        reader="reader",
        commit_reader="commit reader",
        list_partitions=lambda _: [OWN, other],
    )
    loaded = ConsumerGroup.load_commits(cast("Any", group), [OWN.topic], [OWN])
    assert loaded == {other: commit}
