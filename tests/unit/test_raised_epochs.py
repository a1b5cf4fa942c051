"""After a commit of raised epochs: it is read before the epochs of other partitions are, or a run
that was planned in between could have a higher one and the old frontiers.
"""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest

from common import run_epochs
from common.frontier import Frontier, RuleState
from common.kafka.partition_offsets import GroupCommit
from common.routes import Route, TopicPartition
from common.settings import load
from deduplicator.frontiers.committed_frontiers import TransactionUndecided
from deduplicator.frontiers.frontier_store import LoadedFrontiers
from deduplicator.frontiers.gone_positions import raise_epoch
from deduplicator.frontiers.start import PartitionStarter, StartedPartitions
from deduplicator.partitions import AssignedPartition
from deduplicator.transactions.transaction_failures import TransactionFailed

CLOCK_S = 1_700_000_000
OWN, OTHER = TopicPartition("t-proxy", 0), TopicPartition("t-proxy", 1)
OLD = Frontier(RuleState(6, 1, None), "0123456789abcdef", 2, "id", -1, 0)
RAISED = raise_epoch(OLD, run_epochs.create_higher_epoch(CLOCK_S * 1000, [1]))


class Group:
    """The group's commits; with a marker that is late, `pending` replaces one of them."""

    def __init__(self) -> None:
        self.commits = {OWN: GroupCommit(7, OLD), OTHER: GroupCommit(9, OLD)}
        self.pending: dict[TopicPartition, GroupCommit] = {}
        self.undecided_since: float | None = 5.0
        self.starter = PartitionStarter(
            load(
                {
                    "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1",
                    "REO_DESTINATION_BOOTSTRAP_SERVERS": "b:1",
                    "REO_SOURCE_TOPIC": "t",
                }
            ),
            {"t-proxy": Route("t", "t", "t-proxy")},
            cast(Any, self),
            cast(
                Any,
                SimpleNamespace(
                    list_started_topics=set,
                    load_frontiers=lambda _: LoadedFrontiers(dict(self.commits), frozenset()),
                ),
            ),
            lambda: CLOCK_S,
        )

    def load_commits(
        self, _: Collection[str], own: Collection[TopicPartition] = ()
    ) -> dict[TopicPartition, GroupCommit]:
        """As `ConsumerGroup`."""
        if self.pending.keys() & set(own):
            raise TransactionUndecided("no marker yet")
        return dict(self.commits)


def start_own() -> StartedPartitions:
    """After the commit of OWN's raised epoch."""
    return StartedPartitions({OWN: AssignedPartition(7, RAISED)}, {}, [], [OWN])


def test_a_commit_is_read_before_those_of_others() -> None:
    """The marker is late. Meanwhile another worker raises its own epoch, and a run reads that and
    the old frontier of this partition: its epoch has to be exceeded.
    """
    group, start = Group(), start_own()
    group.pending = {OWN: GroupCommit(7, RAISED)}
    with pytest.raises(TransactionUndecided):
        group.starter.raise_epochs_again(start)
    assert start.epoch_raised == [OWN], "it is compared later"
    theirs = raise_epoch(OLD, RAISED.rule.epoch + (5 << run_epochs.RANDOM_BITS))
    group.commits[OTHER] = GroupCommit(9, theirs)
    epochs = [commit.frontier.rule.epoch for commit in group.commits.values()]
    run_epoch = run_epochs.create_run_epoch(CLOCK_S * 1000, epochs, random_bits=7)
    assert run_epoch > RAISED.rule.epoch
    group.commits |= group.pending
    group.pending = {}
    assert group.starter.raise_epochs_again(start) == [OWN]
    assert start.assigned[OWN].frontier.rule.epoch > run_epoch
    assert group.undecided_since is None, "the next wait is another one"


def test_an_epoch_that_none_can_exceed_stays() -> None:
    """The commit can be read, the others are older."""
    group, start = Group(), start_own()
    group.commits[OWN] = GroupCommit(7, RAISED)
    assert group.starter.raise_epochs_again(start) == []
    assert start.assigned[OWN].frontier == RAISED
    assert start.epoch_raised == []


@pytest.mark.parametrize("found", [GroupCommit(7, OLD), None])
def test_a_commit_that_is_not_there_is_made_again(found: GroupCommit | None) -> None:
    """The group was rebalancing and ignored it: after a poll it is committed and compared again."""
    group, start = Group(), start_own()
    group.commits = {OTHER: GroupCommit(9, OLD)} | ({OWN: found} if found else {})
    with pytest.raises(TransactionFailed, match="t-proxy"):
        group.starter.raise_epochs_again(start)
    assert (start.to_commit, start.epoch_raised) == ([OWN], [OWN])
