"""A partition's frontier when the partition is assigned: loaded and checked, created for the first
time, or refused.

Only stage two writes frontiers, in a transaction, and stage one begins no run before every
partition has one. So the offset where a copy begins is durable before any record is copied, even if
any process is killed.

What is found, and what follows, is a table (`deduplicator.frontiers.start_table`). A frontier is
compared with the destination's records (`deduplicator.frontiers.frontier_check`); its position need
not exist any more, the client goes on at the earliest record. A frontier of a route that is not one
to one (a mapping, or a shared destination) says nothing about its output: other routes write there
too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from common import source_pool
from common.errors import ClusterUnreachable, ForeignWriter, HangingTransaction
from common.frontier import Frontier
from common.kafka import partition_offsets, source_topics, topics
from common.kafka.clients import create_admin_client
from common.kafka.partition_offsets import GroupCommit
from common.routes import Route, TopicPartition
from common.settings import Settings, destination_kind
from deduplicator.destination import UNCOUNTED, Output
from deduplicator.frontiers.committed_frontiers import TransactionUndecided, WorkerGroup
from deduplicator.frontiers.found_partition import ClusterState, FoundPartition
from deduplicator.frontiers.frontier_store import FrontierStore, LoadedFrontiers
from deduplicator.frontiers.source_start_offsets import (
    check_start_offsets,
    find_first_source_offsets,
)
from deduplicator.frontiers.start_table import BEGINNING, find_row
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
        consumer_group: WorkerGroup,
        frontier_store: FrontierStore,
        create_topics: Callable[[], object] = lambda: None,
    ) -> None:
        self.settings = settings
        self.routes = routes
        self.consumer_group = consumer_group
        self.frontier_store = frontier_store
        self.create_topics = create_topics
        """Creates missing topics, and adds missing partitions; `reo check` changes nothing."""
        self.new_topics: set[str] = set()
        """Intermediate topics of sources that did not exist when the process started: with
        `source.start=latest` they are copied from the beginning.
        """
        self.started_topics = frontier_store.list_started_topics()
        """Read before this worker joins: later, others can have created frontiers."""
        self.is_recoverable = not (
            settings.list_filters() or destination_kind.is_outside_kafka(settings)
        )

    def start_partitions(
        self,
        topic_partitions: Iterable[TopicPartition],
        known: Mapping[TopicPartition, Frontier] = MappingProxyType({}),
    ) -> list[Partition]:
        """These intermediate partitions with their frontiers; a Stop when one is refused. Waits
        while the destination does not answer; TransactionUndecided while another producer's
        transaction is open, or topics are missing: then it has to be called again, after a poll.
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
            self.create_topics()
            raise TransactionUndecided("topics were missing")
        found = [
            FoundPartition(
                self, tp, commits.get(tp), destinations[tp.topic], is_lost=tp in to_commit_again
            )
            for tp in partitions
        ]
        started = [
            Partition(
                one.tp,
                one.route,
                commits[one.tp].intermediate_offset,
                one.frontier,
                is_uncommitted=one.decide() == "commit again",
            )
            for one in found
            if one.frontier
        ]
        self._check_outputs(
            [partition for partition in started if partition.route.is_one_to_one],
            {tp: commits.get(tp) for tp in partitions},
            known,
        )
        started += self._create_first_frontiers([one for one in found if not one.frontier], commits)
        for partition in started:
            if not partition.route.is_one_to_one:
                partition.partitioner = build_partitioner(
                    partition.route,
                    partition.tp.partition,
                    destinations[partition.tp.topic].partitions,
                    CallLimit(self.consumer_group.liveness.beat),
                )
        self.consumer_group.undecided_since = None
        return started

    def _create_first_frontiers(
        self, missing: Sequence[FoundPartition], commits: Mapping[TopicPartition, GroupCommit]
    ) -> list[Partition]:
        """Of partitions without a frontier, to be committed. The position is the end of the
        intermediate partition: what is there already was written for another copy. FrontierLost
        when a frontier was there before, TopicMissing when a source topic was deleted.
        """
        partitions: list[Partition] = []
        if not missing:
            return partitions
        self.read_cluster_state(missing, commits)
        for found in missing:
            found.decide()
        source_offsets = find_first_source_offsets(
            self.settings,
            missing[0].cluster.source_admin,
            {
                found.route.get_source(found.tp.partition): find_row(BEGINNING, found).decided
                == "first record"
                for found in missing
            },
        )
        for found in missing:
            source_offset = source_offsets[found.route.get_source(found.tp.partition)]
            partitions.append(self.build_first_frontier(found, source_offset))
        ends = partition_offsets.list_end_offsets(
            self.consumer_group.admin, [found.tp for found in missing]
        )
        for partition in partitions:
            partition.next_offset = ends[partition.tp]
        return partitions

    def read_cluster_state(
        self, missing: Sequence[FoundPartition], commits: Mapping[TopicPartition, GroupCommit]
    ) -> None:
        """What these partitions are asked for later; `commits` are those of their topics."""
        ends = self.frontier_store.get_end_offsets(
            {output for found in missing for output in found.outputs}
        )
        settings = source_pool.select_answering(self.settings)
        source_admin = create_admin_client(settings.source_cluster, settings)
        sources = source_topics.describe_sources(
            settings, source_admin, self.settings.connect_timeout_s
        )
        source_topics.check_none_deleted([found.route for found in missing], sources)
        topic_ids = {found.tp.topic: found.destination.topic_id for found in missing}
        started = {
            tp
            for tp, commit in commits.items()
            # "": a store of the user's own says nothing of other workers' partitions
            if commit.frontier.destination_topic_id in ("", topic_ids.get(tp.topic))
        }.difference(found.tp for found in missing)
        check_start_offsets(self.settings, source_admin, sources, started)
        cluster = ClusterState(
            commits, ends, source_admin, sources, self, [found.tp for found in missing]
        )
        for found in missing:
            found.cluster = cluster

    def build_first_frontier(self, found: FoundPartition, offset: int) -> Partition:
        """A partition with its first frontier, whose copy begins at this source offset."""
        output = UNCOUNTED
        if found.route.is_one_to_one:
            end = found.cluster.ends[found.route.get_destination(found.tp.partition)]
            output = Output(end - 1, 0)
        topic_id, source = found.destination.topic_id, found.route.get_source(found.tp.partition)
        log.info(
            "%(tp)s: first frontier, the copy begins at source offset %(offset)d",
            {"tp": source, "offset": offset},
        )
        frontier = Frontier(
            source_offset=offset - 1,
            epoch=found.epoch,
            source_identity=source_pool.find_copied_identity(
                self.settings,
                found.cluster.sources[found.route],
                (one for one in found.topic_frontiers if one.destination_topic_id == topic_id),
            ),
            source_partitions=found.source_partitions,
            destination_topic_id=topic_id,
            destination_known=output.known_offset,
            sent=output.sent,
        )
        return Partition(
            found.tp,
            found.route,
            -1,
            frontier,
            output,
            is_uncommitted=True,
            replaced=found.commit.frontier if found.commit else None,
        )

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
        one_to_one: Collection[Partition],
        commits: Mapping[TopicPartition, GroupCommit | None],
        known: Mapping[TopicPartition, Frontier],
    ) -> None:
        """Compare these partitions with what the destination has. TransactionUndecided when
        `commits`, of all partitions of the start, are not the last ones: a worker that stood still
        after reading them sees all that another one has written since.
        """
        try:
            outputs, surplus = self.frontier_store.check_outputs(
                {partition.destination_tp: partition.frontier for partition in one_to_one}
            )
        except ForeignWriter:
            again, _ = self._load_frontiers(commits, known)
            if all(again.get(tp) == commit for tp, commit in commits.items()):
                raise
            raise TransactionUndecided(
                "the frontiers have moved while the destination was compared with them: another"
                " worker had these partitions"
            ) from None
        for partition in one_to_one:
            partition.output = outputs[partition.destination_tp]
            partition.surplus = surplus.get(partition.destination_tp)

    def on_revoked(self) -> None:
        """Other partitions are to be started than before: whatever transaction was waited for, it
        is another one from now on.
        """
        self.consumer_group.undecided_since = None

    def find_lost_commits(
        self, topic_partitions: Collection[TopicPartition]
    ) -> list[TopicPartition]:
        """Those without an offset though their topic exists; none without an answer."""
        try:
            commits = self.consumer_group.group.list_commits(topic_partitions, require_stable=False)
            lost = sorted(set(topic_partitions) - commits.keys())
            existing = self.consumer_group.describe_topics({tp.topic for tp in lost})
        except (ClusterUnreachable, HangingTransaction) as unreadable:
            log.debug("the group's offsets cannot be read now: %s", unreadable)
            return []
        return [tp for tp in lost if tp.topic in existing]

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
