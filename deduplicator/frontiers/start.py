"""A partition's frontier when the partition is assigned: loaded and checked, created for the first
time, or refused.

Only stage two writes frontiers, in a transaction, and stage one begins no run before every
partition has one. So the offset where a copy begins is durable before any record is copied, even if
any process is killed.

What is found, and what follows:

- a frontier: it is compared with the destination's records
  (`deduplicator.frontiers.frontier_check`). Its position need not exist any more: the client goes
  on at the earliest record;
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
from types import MappingProxyType

from common import source_pool
from common.errors import ClusterUnreachable, ForeignWriter, HangingTransaction
from common.frontier import Frontier, check_not_moved
from common.kafka import partition_offsets, topic_creation, topics
from common.kafka.partition_offsets import GroupCommit
from common.routes import Route, TopicPartition
from common.settings import Settings
from deduplicator.destination import UNCOUNTED
from deduplicator.frontiers.committed_frontiers import ConsumerGroup, TransactionUndecided
from deduplicator.frontiers.first_frontiers import FirstFrontiers
from deduplicator.frontiers.frontier_store import CheckedOutputs, FrontierStore, LoadedFrontiers
from deduplicator.partition import Partition
from deduplicator.partitioner import build_partitioner
from deduplicator.user_call_timeout import CallLimit

log = logging.getLogger(__name__)


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
        known: Mapping[TopicPartition, Frontier] = MappingProxyType({}),
    ) -> list[Partition]:
        """These intermediate partitions with their frontiers; a Stop when one is refused. Waits
        while the destination does not answer; TransactionUndecided while another producer's
        transaction is open, or topics were created: then it has to be called again, after a poll.
        `known`: frontiers that are committed unless the group has lost them.
        """
        partitions = sorted(topic_partitions)
        if not partitions:
            return []
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
        one_to_one = {
            self._get_output(tp): commit.frontier
            for tp, commit in usable.items()
            if self.routes[tp.topic].is_one_to_one
        }
        outputs, surplus = self._check_outputs(one_to_one, partitions, commits, known)
        started = [
            Partition(
                tp,
                self.routes[tp.topic],
                commit.intermediate_offset,
                commit.frontier,
                outputs.get(self._get_output(tp), UNCOUNTED),
                surplus.get(self._get_output(tp)),
                is_uncommitted=tp in to_commit_again,
            )
            for tp, commit in usable.items()
        ]
        first = self.first_frontiers.create(
            [tp for tp in partitions if tp not in usable], commits, destinations
        )
        self._set_first_positions(first)
        for partition in (started := started + first):
            if not partition.route.is_one_to_one:
                partition.partitioner = build_partitioner(
                    partition.route,
                    partition.tp.partition,
                    destinations[partition.tp.topic].partitions,
                    CallLimit(self.consumer_group.liveness.beat),
                )
        self.consumer_group.undecided_since = None
        return started

    def _set_first_positions(self, first: Collection[Partition]) -> None:
        """A copy begins at the end of the intermediate partition: what is there already was written
        for another one.
        """
        ends = partition_offsets.list_end_offsets(
            self.consumer_group.admin, [partition.tp for partition in first]
        )
        for partition in first:
            partition.next_offset = ends[partition.tp]

    def _load_frontiers(
        self,
        partitions: Collection[TopicPartition],
        known: Mapping[TopicPartition, Frontier],
    ) -> LoadedFrontiers:
        """Where the group has lost one, as it is known, and to be committed again. Its position is
        one of a topic that was deleted, so everything is read in the new one.
        """
        loaded = self.frontier_store.load_frontiers(partitions)
        known_commits = {tp: GroupCommit(0, frontier) for tp, frontier in known.items()}
        lost = known_commits.keys() - loaded.commits.keys()
        return LoadedFrontiers(known_commits | loaded.commits, loaded.to_commit_again | lost)

    def _check_outputs(
        self,
        one_to_one: Mapping[TopicPartition, Frontier],
        partitions: Collection[TopicPartition],
        commits: Mapping[TopicPartition, GroupCommit],
        known: Mapping[TopicPartition, Frontier],
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
