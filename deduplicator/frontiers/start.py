"""A partition's frontier when the partition is assigned: loaded and checked, created for the first
time, moved to the end, or refused.

Only stage two writes frontiers, in a transaction, and stage one begins no run before every
partition has one. So the offset where a copy begins is durable before any record is copied, even if
any process is killed.

What is found, and what follows:

- a frontier, its position inside the intermediate topic: it is compared with the destination's
  records (`deduplicator.frontier_check`);
- a frontier, its position outside, records after it missing (deleted or lost unread), or another
  intermediate topic: the same; then its position is set to the end, its epoch raised, or it is
  refused (`deduplicator.frontiers.gone_positions`);
- no frontier, an empty destination partition: the first frontier
  (`deduplicator.frontiers.first_frontiers`): `source.start`, or the beginning for a new partition;
- a frontier of another destination topic (the topic was recreated): as without a frontier, but
  never later than what was copied;
- no frontier, records at the destination: FrontierLost, or, with
  deduplicator.without_frontier=append, the first frontier;
- the same, on a route that is not one to one: the first frontier, if the records certainly came
  from other sources.

A frontier of a route that is not one to one (a mapping, or a shared destination) says nothing about
its output: other routes write there too.

Whatever sets a frontier, except the rule, raises the epoch: an hour above the clock and above all
known epochs. So only a run that has read the frontier is believed (`common.run_epochs`): any other
run could leave out the records that were deleted, or those in between.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from common import run_epochs, runtime, source_candidates
from common.errors import ClusterUnreachable, ForeignWriter
from common.frontier import Frontier
from common.kafka import topic_creation, topics
from common.kafka.partition_offsets import GroupCommit
from common.routes import Route, TopicPartition
from common.settings import Settings
from deduplicator.destination import DestinationState
from deduplicator.frontiers.committed_frontiers import ConsumerGroup, TransactionUndecided
from deduplicator.frontiers.first_frontiers import FirstFrontiers
from deduplicator.frontiers.frontier_store import CheckedOutputs, FrontierStore, LoadedFrontiers
from deduplicator.frontiers.gone_positions import move_to_end, raise_epoch
from deduplicator.partitioner import build_partitioner
from deduplicator.partitions import AssignedPartition
from deduplicator.transactions.transaction_failures import TransactionFailed
from deduplicator.user_call_timeout import CallLimit

log = logging.getLogger(__name__)


@dataclass(slots=True)
class StartedPartitions:
    """Frontiers of some partitions; those in `to_commit` are new, or have to be committed again,
    before anything else.

    `epoch_raised`: those in `to_commit` that the rule has not set.
    """

    assigned: dict[TopicPartition, AssignedPartition] = field(default_factory=dict)
    outputs: dict[TopicPartition, DestinationState] = field(default_factory=dict)
    """By destination partition; everything else is by intermediate partition."""
    to_commit: list[TopicPartition] = field(default_factory=list)
    epoch_raised: list[TopicPartition] = field(default_factory=list)

    def forget(self, tp: TopicPartition) -> None:
        """The partition is another worker's now, or its frontier has to be loaded again."""
        self.assigned.pop(tp, None)
        self.to_commit = [other for other in self.to_commit if other != tp]
        self.epoch_raised = [other for other in self.epoch_raised if other != tp]


class PartitionStarter:
    """Loads or creates the frontiers of partitions, with the frontier store and, for the
    intermediate topics, the destination cluster.
    """

    def __init__(
        self,
        settings: Settings,
        routes: Mapping[str, Route],
        consumer_group: ConsumerGroup,
        frontier_store: FrontierStore,
        clock: Callable[[], float] = runtime.time,
    ) -> None:
        self.settings = settings
        self.routes = routes
        self.clock = clock
        self.partitions_with_gaps: set[TopicPartition] = set()
        """Partitions that lack unread records at or after their position: they are started as if
        the position no longer existed.
        """
        self.consumer_group = consumer_group
        self.frontier_store = frontier_store
        self.first_frontiers = FirstFrontiers(settings, routes, consumer_group, frontier_store)

    def start_partitions(
        self,
        topic_partitions: Iterable[TopicPartition],
        known: Mapping[TopicPartition, AssignedPartition] = MappingProxyType({}),
    ) -> StartedPartitions:
        """The frontiers of these intermediate partitions; a Stop when one is refused. Waits while
        the destination does not answer; TransactionUndecided while another producer's transaction
        is open, or topics were created: then it has to be called again, after a poll. `known`: as
        `Partitions.last_committed`.
        """
        partitions = sorted(topic_partitions)
        if not partitions:
            return StartedPartitions()
        names = {tp.topic for tp in partitions}
        # before the frontiers: a topic that is recreated from now on has another id than these get
        intermediates = self.consumer_group.describe_intermediates(names)
        commits, to_commit_again = self._load_frontiers(partitions, known)
        destinations = self.frontier_store.describe_destinations(
            [self.routes[topic] for topic in names]
        )
        if destinations is None or not topics.has_partitions(intermediates, partitions):
            source_candidates.try_candidates(
                self.settings, topic_creation.prepare_topics, self.consumer_group.liveness.beat
            )
            raise TransactionUndecided("topics were created: starting again after a poll")
        usable = {
            tp: commits[tp]
            for tp in partitions
            if tp in commits
            and commits[tp].frontier.destination_topic_id == destinations[tp.topic].topic_id
        }
        result = StartedPartitions()
        one_to_one = {
            self._get_output(tp): commit.frontier
            for tp, commit in usable.items()
            if self._is_one_to_one(tp)
        }
        result.outputs, surplus = self._check_outputs(one_to_one, partitions, commits, known)
        result.assigned = {
            tp: AssignedPartition(
                commit.intermediate_offset, commit.frontier, surplus.get(self._get_output(tp))
            )
            for tp, commit in usable.items()
        }
        first_assigned, first_outputs = self.first_frontiers.create(
            [tp for tp in partitions if tp not in usable], commits, destinations
        )
        result.assigned |= first_assigned
        result.outputs |= first_outputs
        self._move_to_end(result, intermediates, commits)
        result.to_commit += sorted(to_commit_again & usable.keys() - set(result.to_commit))
        self._set_partitioners(result.assigned, destinations)
        self.consumer_group.undecided_since = None
        return result

    def _move_to_end(
        self,
        result: StartedPartitions,
        intermediates: Mapping[str, topics.Topic],
        commits: Mapping[TopicPartition, GroupCommit],
    ) -> None:
        moved = move_to_end(
            self.consumer_group,
            result.assigned,
            intermediates,
            self.partitions_with_gaps,
            [commit.frontier.rule.epoch for commit in commits.values()],
            self.clock,
        )
        self.partitions_with_gaps -= moved
        result.to_commit, result.epoch_raised = sorted(moved), sorted(moved)

    def _set_partitioners(
        self,
        assigned: Mapping[TopicPartition, AssignedPartition],
        destinations: Mapping[str, topics.Topic],
    ) -> None:
        for tp, state in assigned.items():
            if not self._is_one_to_one(tp):
                limit = CallLimit(self.consumer_group.liveness.beat)
                state.partitioner = build_partitioner(
                    self.routes[tp.topic], tp.partition, destinations[tp.topic].partitions, limit
                )

    def _load_frontiers(
        self,
        partitions: Collection[TopicPartition],
        known: Mapping[TopicPartition, AssignedPartition],
    ) -> LoadedFrontiers:
        """Where the group has lost one, as it is known, and to be committed again."""
        loaded = self.frontier_store.load_frontiers(partitions)
        known_commits = {
            tp: GroupCommit(state.next_offset, state.frontier) for tp, state in known.items()
        }
        lost = known_commits.keys() - loaded.commits.keys()
        return LoadedFrontiers(known_commits | loaded.commits, loaded.to_commit_again | lost)

    def _check_outputs(
        self,
        one_to_one: Mapping[TopicPartition, Frontier],
        partitions: Collection[TopicPartition],
        commits: Mapping[TopicPartition, GroupCommit],
        known: Mapping[TopicPartition, AssignedPartition],
    ) -> CheckedOutputs:
        """TransactionUndecided when these commits are not the last ones: a worker that stood still
        after reading them sees all that another one has written since.
        """
        try:
            return self.frontier_store.check_outputs(one_to_one)
        except ForeignWriter:
            again, _ = self._load_frontiers(partitions, known)
            if all(again.get(tp) == commits.get(tp) for tp in partitions):
                raise
            raise TransactionUndecided(
                "the frontiers have moved while the destination was compared with them: another"
                " worker had these partitions"
            ) from None

    def on_revoked(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Other partitions are to be started than before: whatever transaction was waited for, it
        is another one from now on. What these lack is their next owner's to find out.
        """
        self.consumer_group.undecided_since = None
        self.partitions_with_gaps.difference_update(topic_partitions)

    def _is_one_to_one(self, tp: TopicPartition) -> bool:
        return self.routes[tp.topic].is_one_to_one

    def _get_output(self, tp: TopicPartition) -> TopicPartition:
        return self.routes[tp.topic].get_destination(tp.partition)

    def find_unassigned(self) -> list[TopicPartition] | None:
        """The partitions of the intermediate topics that are unassigned; None while the group is
        rebalancing, or the cluster does not answer.
        """
        try:
            assigned = self.consumer_group.group.list_assigned()
            return (
                None
                if assigned is None
                else sorted(set(self.consumer_group.list_partitions(self.routes)) - assigned)
            )
        except ClusterUnreachable as unreachable:
            log.debug("%s", unreachable)
            return None

    def raise_epochs_again(self, start: StartedPartitions) -> list[TopicPartition]:
        """After the commit of `to_commit`: the partitions to commit once more, because a run that
        has not read these frontiers can still have a higher epoch. It raises what
        `_check_readable` does.

        A run has one epoch for all partitions. While this commit was on its way, another worker can
        have raised the epochs of other partitions, and a run can have read those, and the old
        frontiers of these. That run was planned before this commit could be read, so the others'
        epochs, read after that, limit how high its epoch can be.
        """
        self._check_readable(start)
        commits = self.consumer_group.load_commits(self.routes)
        others = [
            commit.frontier.rule.epoch
            for tp, commit in commits.items()
            if tp not in start.epoch_raised
        ]
        too_low = [
            tp
            for tp in start.epoch_raised
            if run_epochs.can_exceed(others, start.assigned[tp].frontier.rule.epoch)
        ]
        epoch = run_epochs.create_higher_epoch(int(self.clock() * 1000), others)
        for tp in too_low:
            start.assigned[tp].frontier = raise_epoch(start.assigned[tp].frontier, epoch)
        start.epoch_raised = []
        return too_low

    def _check_readable(self, start: StartedPartitions) -> None:
        """TransactionUndecided while the commit of `epoch_raised` cannot be read: EndTxn is
        answered before the group has its marker. Then this has to be called again, after a poll.

        TransactionFailed when the group has other commits: a member's commit outside a transaction
        is ignored while the group rebalances (`Intermediate.commit`). Then `to_commit` has those
        that have to be committed again.
        """
        raised = start.epoch_raised
        commits = self.consumer_group.load_commits({tp.topic for tp in raised}, raised)
        start.to_commit = [
            tp
            for tp in raised
            if tp not in commits or commits[tp].frontier.rule != start.assigned[tp].frontier.rule
        ]
        if start.to_commit:
            raise TransactionFailed(
                f"the group's commits on {start.to_commit} are not those that were just written"
            )
        self.consumer_group.undecided_since = None
