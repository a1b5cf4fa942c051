"""A partition's frontier when the partition is assigned: loaded and checked, created for the first
time, or refused.

Only stage two writes frontiers, in a transaction, and stage one begins no run before every
partition has one. So the offset where a copy begins is durable before any record is copied, even if
any process is killed.

What is found, and what follows:

- a frontier: it is compared with the destination's records (`deduplicator.frontier_check`). Its
  position need not exist any more: the client goes on at the earliest record;
- no frontier, an empty destination partition: the first frontier
  (`deduplicator.frontiers.first_frontiers`): `source.start`, or the beginning for a new partition;
- a frontier of a topic that has moved (`reo cutover run`): MoveRefused;
- a frontier of another destination topic (the topic was recreated): as without a frontier, but
  never later than what was copied;
- no frontier, records at the destination: FrontierLost, or, with
  deduplicator.without_frontier=append, the first frontier;
- the same, on a route that is not one to one: the first frontier, if the records certainly came
  from other sources;
- no frontier of a partition that this worker has copied until now: the group has lost it together
  with the topic, and it is committed again.

A frontier of a route that is not one to one (a mapping, or a shared destination) says nothing about
its output: other routes write there too.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from common import source_pool
from common.errors import ClusterUnreachable, ForeignWriter, HangingTransaction
from common.frontier import Frontier, check_not_moved
from common.kafka import partition_offsets, topic_creation, topics
from common.kafka.partition_offsets import GroupCommit
from common.routes import Route, TopicPartition
from common.settings import Settings
from deduplicator.destination import DestinationState
from deduplicator.frontiers.committed_frontiers import ConsumerGroup, TransactionUndecided
from deduplicator.frontiers.first_frontiers import FirstFrontiers
from deduplicator.frontiers.frontier_store import CheckedOutputs, FrontierStore, LoadedFrontiers
from deduplicator.partitioner import build_partitioner
from deduplicator.partitions import AssignedPartition
from deduplicator.user_call_timeout import CallLimit

log = logging.getLogger(__name__)


@dataclass(slots=True)
class StartedPartitions:
    """Frontiers of some partitions; those in `to_commit` are new, or have to be committed again,
    before anything else.
    """

    assigned: dict[TopicPartition, AssignedPartition] = field(default_factory=dict)
    outputs: dict[TopicPartition, DestinationState] = field(default_factory=dict)
    """By destination partition; everything else is by intermediate partition."""
    to_commit: list[TopicPartition] = field(default_factory=list)

    def forget(self, tp: TopicPartition) -> None:
        """The partition is another worker's now, or its frontier has to be loaded again."""
        self.assigned.pop(tp, None)
        self.to_commit = [other for other in self.to_commit if other != tp]


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
    ) -> None:
        self.settings = settings
        self.routes = routes
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
        is open, or topics were created: then it has to be called again, after a poll. `known`:
        states that are committed unless the group has lost them.
        """
        partitions = sorted(topic_partitions)
        if not partitions:
            return StartedPartitions()
        names = {tp.topic for tp in partitions}
        commits, to_commit_again = self._load_frontiers(partitions, known)
        destinations = self.frontier_store.describe_destinations(
            [self.routes[topic] for topic in names]
        )
        if destinations is None or not topics.has_partitions(
            self.consumer_group.describe_intermediates(names), partitions
        ):
            source_pool.try_sources(
                self.settings, topic_creation.prepare_topics, self.consumer_group.liveness.beat
            )
            raise TransactionUndecided("topics were created: starting again after a poll")
        usable = {
            tp: commits[tp]
            for tp in partitions
            if tp in commits
            and commits[tp].frontier.destination_topic_id == destinations[tp.topic].topic_id
        }
        for tp, commit in usable.items():
            check_not_moved(self.routes[tp.topic].get_source(tp.partition), commit.frontier)
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
        self._set_first_positions(result.assigned)
        result.to_commit = sorted(first_assigned.keys() | (to_commit_again & usable.keys()))
        self._set_partitioners(result.assigned, destinations)
        self.consumer_group.undecided_since = None
        return result

    def _set_first_positions(self, assigned: Mapping[TopicPartition, AssignedPartition]) -> None:
        """A copy begins at the end of the intermediate partition: what is there already was written
        for another one.
        """
        without = [tp for tp, state in assigned.items() if state.next_offset < 0]
        ends = partition_offsets.list_end_offsets(self.consumer_group.admin, without)
        for tp in without:
            assigned[tp].next_offset = ends[tp]

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
        """Where the group has lost one, as it is known, and to be committed again. Its position is
        one of a topic that was deleted, so everything is read in the new one.
        """
        loaded = self.frontier_store.load_frontiers(partitions)
        known_commits = {tp: GroupCommit(0, state.frontier) for tp, state in known.items()}
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

    def on_revoked(self) -> None:
        """Other partitions are to be started than before: whatever transaction was waited for, it
        is another one from now on.
        """
        self.consumer_group.undecided_since = None

    def find_lost_commits(
        self, topic_partitions: Collection[TopicPartition]
    ) -> list[TopicPartition]:
        """Those of which the group has no offset, though their topic exists; none while the cluster
        does not answer.
        """
        try:
            commits = self.consumer_group.group.list_commits(topic_partitions, require_stable=False)
            lost = sorted(set(topic_partitions) - commits.keys())
            existing = self.consumer_group.describe_topics({tp.topic for tp in lost})
        except (ClusterUnreachable, HangingTransaction) as unreadable:
            log.debug("the group's offsets cannot be read now: %s", unreadable)
            return []
        return [tp for tp in lost if tp.topic in existing]

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
