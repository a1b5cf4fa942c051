"""First frontiers: where the copy of a partition begins that has no frontier yet.

One is created only where it is certain that nothing of the partition was copied before, or where
the settings say that this does not matter; otherwise the frontier was lost. What is found and what
follows is a list in `deduplicator.frontiers.start`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka.admin import AdminClient

from common import filters, partition_mapping, source_pool
from common.errors import FrontierLost
from common.frontier import Frontier
from common.kafka import partition_offsets, topics
from common.kafka.clients import create_admin_client
from common.kafka.partition_offsets import GroupCommit
from common.routes import SAME, Route, TopicPartition
from common.settings import Settings, destination_kind
from deduplicator.destination import UNCOUNTED, Output
from deduplicator.frontiers.committed_frontiers import ConsumerGroup, TransactionUndecided
from deduplicator.frontiers.frontier_store import FrontierStore
from deduplicator.frontiers.source_start_offsets import (
    check_start_offsets,
    find_first_source_offset,
)
from deduplicator.partition import Partition

log = logging.getLogger(__name__)


class ClusterState(NamedTuple):
    """What both clusters answered, once for all first frontiers of a start."""

    commits: Mapping[TopicPartition, GroupCommit]
    destinations: Mapping[str, topics.Topic]
    """By intermediate topic."""
    ends: Mapping[TopicPartition, int]
    """By destination partition."""
    source_admin: AdminClient
    sources: Mapping[Route, topics.Topic]


class FirstFrontiers:
    """Creates them; `routes` is by intermediate topic."""

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
        self.new_topics: set[str] = set()
        """Intermediate topics of sources that did not exist when the process started: with
        `source.start=latest` they are copied from the beginning.
        """
        self.started_topics = frontier_store.list_started_topics()
        """Read before this worker joins the group: later, other workers can have created frontiers
        in the same first start.
        """
        self.is_recoverable = not (
            filters.list_filter_settings(settings) or destination_kind.is_outside_kafka(settings)
        )

    def create(
        self,
        missing: Sequence[TopicPartition],
        commits: Mapping[TopicPartition, GroupCommit],
        destinations: Mapping[str, topics.Topic],
    ) -> list[Partition]:
        """These intermediate partitions with their first frontiers, to be committed; the positions
        are not known yet. FrontierLost when one was there before, TopicMissing when a source topic
        was deleted.
        """
        partitions: list[Partition] = []
        if not missing:
            return partitions
        state = self.read_cluster_state(missing, commits, destinations)
        for tp in missing:
            route = self.routes[tp.topic]
            has_records = self.has_records(tp, state)
            output = (
                Output(state.ends[route.get_destination(tp.partition)] - 1, 0)
                if route.is_one_to_one
                else UNCOUNTED
            )
            frontier = self._build_frontier(tp, has_records, output, state)
            log.info(
                "%(tp)s: first frontier, the copy begins at source offset %(offset)d",
                {"tp": route.get_source(tp.partition), "offset": frontier.source_offset + 1},
            )
            partitions.append(Partition(tp, route, -1, frontier, output, is_uncommitted=True))
        return partitions

    def read_cluster_state(
        self,
        missing: Sequence[TopicPartition],
        commits: Mapping[TopicPartition, GroupCommit],
        destinations: Mapping[str, topics.Topic],
    ) -> ClusterState:
        """What the first frontiers of these intermediate partitions depend on."""
        ends = self.frontier_store.get_end_offsets(
            {output for tp in missing for output in self._list_outputs(tp, destinations)}
        )
        settings = source_pool.select_answering(self.settings)
        source_admin = create_admin_client(settings.source_cluster, settings)
        sources = topics.describe_sources(settings, source_admin, self.settings.connect_timeout_s)
        topics.check_none_deleted([self.routes[tp.topic] for tp in missing], sources)
        started = {
            tp
            for tp, commit in commits.items()
            # "": a store of the user's own says nothing of other workers' partitions
            if commit.frontier.destination_topic_id in ("", destinations[tp.topic].topic_id)
        }.difference(missing)
        check_start_offsets(self.settings, source_admin, sources, started)
        return ClusterState(commits, destinations, ends, source_admin, sources)

    def has_records(self, tp: TopicPartition, state: ClusterState) -> bool:
        """Whether there are records where those of an intermediate partition go; FrontierLost when
        they can be its own.
        """
        for output in self._list_outputs(tp, state.destinations):
            if state.ends[output] > 0:
                self._check_may_append(tp, output, state)
                return True
        return False

    def _check_may_append(
        self, tp: TopicPartition, filled: TopicPartition, state: ClusterState
    ) -> None:
        """FrontierLost when the records of a destination partition can be this partition's."""
        route = self.routes[tp.topic]
        self._check_still_missing(tp, state.destinations[tp.topic])
        if self.settings.deduplicator.without_frontier != "refuse" or self._is_from_other_sources(
            tp, state.sources[route], state.destinations
        ):
            return
        can_recover = route.is_one_to_one and self.is_recoverable
        recovery = "`reo recover` finds the frontier from the data. Otherwise copy"
        raise FrontierLost(
            f"{filled} has records (it ends at {state.ends[filled]}), but group"
            f" {self.settings.application} has no frontier for {tp}: its offsets expired"
            " or were deleted, or something else wrote to the topic."
            f" {recovery if can_recover else 'Copy'} to a new topic, or set"
            " deduplicator.without_frontier=append to append to the existing records from"
            " source.start on"
        )

    def _build_frontier(
        self, tp: TopicPartition, filled: bool, output: Output, state: ClusterState
    ) -> Frontier:
        source = state.sources[self.routes[tp.topic]]
        destination = state.destinations[tp.topic]
        topic_frontiers = [
            commit.frontier for other, commit in state.commits.items() if other.topic == tp.topic
        ]
        counts = [frontier.source_partitions for frontier in topic_frontiers]
        source_partitions = max(counts, default=source.partitions)
        added = (
            tp.partition >= source_partitions
            or tp in state.commits
            or self._is_new_partition(tp, filled, has_others=bool(counts))
        )
        offset = find_first_source_offset(
            self.settings,
            state.source_admin,
            self.routes[tp.topic].get_source(tp.partition),
            added,
        )
        same_destination = [
            frontier
            for frontier in topic_frontiers
            if frontier.destination_topic_id == destination.topic_id
        ]
        return Frontier(
            source_offset=offset - 1,
            # above those of the runs that have written before: what they wrote is not of this copy
            epoch=max((frontier.epoch for frontier in topic_frontiers), default=-1) + 1,
            source_identity=source_pool.find_copied_identity(
                self.settings, source, same_destination
            ),
            source_partitions=source_partitions,
            destination_topic_id=destination.topic_id,
            destination_known=output.known_offset,
            sent=output.sent,
        )

    def _check_still_missing(self, tp: TopicPartition, destination: topics.Topic) -> None:
        """TransactionUndecided when another worker has created the first frontier since this one
        looked for it, and has copied records.

        That happens when this process stood still in between, and lost the partition. A first
        frontier is committed before any record is written. And a coordinator that resigns can
        answer that a group has no offsets (Kafka 3.9 and before).
        """
        commit = self.frontier_store.load_frontiers([tp]).commits.get(tp)
        if commit is not None and commit.frontier.destination_topic_id == destination.topic_id:
            output = self.routes[tp.topic].get_destination(tp.partition)
            raise TransactionUndecided(f"another worker has begun to copy to {output}")

    def _is_new_partition(self, tp: TopicPartition, filled: bool, has_others: bool) -> bool:
        """Whether a partition without a frontier was added after the copy had begun: `latest` would
        leave out its records from before it was discovered.

        It was added later if the service had frontiers of other topics, or if records of its topic
        were copied before (then the frontiers were lost). If only other partitions of its topic
        have frontiers (`has_others`), it existed when these were created: then the first start is
        not over, unless stage one has written to the topic, which it does when every partition has
        a frontier. With deduplicator.without_frontier=append, after records that somebody else has
        copied, `source.start` applies as it is.
        """
        if tp.topic in self.new_topics or self.settings.start.kind != "latest":
            return tp.topic in self.new_topics
        partitions = self.consumer_group.list_partitions([tp.topic])
        is_written = any(
            partition_offsets.list_end_offsets(self.consumer_group.admin, partitions).values()
        )
        is_later = bool(self.started_topics - {tp.topic}) or (
            is_written if has_others else bool(self.started_topics)
        )
        if self.settings.deduplicator.without_frontier == "append":
            return is_later and not filled
        return is_later or is_written or self._has_copies(self.routes[tp.topic], partitions)

    def _has_copies(self, route: Route, partitions: Iterable[TopicPartition]) -> bool:
        """Whether the destination has records of these intermediate partitions; False where they
        cannot be told from those of other routes.
        """
        outputs = (route.get_destination(tp.partition) for tp in partitions)
        return route.is_one_to_one and any(self.frontier_store.get_end_offsets(outputs).values())

    def _list_outputs(
        self, tp: TopicPartition, destinations: Mapping[str, topics.Topic]
    ) -> list[TopicPartition]:
        """Every destination partition that the records of an intermediate partition can go to."""
        route, fixed = (
            self.routes[tp.topic],
            partition_mapping.parse_fixed_partition(self.routes[tp.topic].mapping),
        )
        if route.mapping == SAME or fixed is not None:
            return [route.get_destination(tp.partition if fixed is None else fixed)]
        return [
            route.get_destination(partition)
            for partition in range(destinations[tp.topic].partitions)
        ]

    def _is_from_other_sources(
        self, tp: TopicPartition, source: topics.Topic, destinations: Mapping[str, topics.Topic]
    ) -> bool:
        """Whether the records at a destination that is not one to one are certainly not this
        partition's: it is new, and others were copied there before.

        Nothing was ever written to its intermediate partition, the group has frontiers for this
        destination, and none of them can be of the same source under another intermediate topic, or
        shows that this one was lost: a run begins only when every partition has one. A topic all of
        whose frontiers were deleted with it looks the same as a new one.
        """
        if (
            self.routes[tp.topic].is_one_to_one
            or partition_offsets.list_end_offsets(self.consumer_group.admin, [tp])[tp] > 0
        ):
            return False
        topic_id = destinations[tp.topic].topic_id
        known = self.consumer_group.group.list_frontiers()
        frontiers = {
            other: frontier
            for other, frontier in known.items()
            if frontier.destination_topic_id == topic_id
        }
        others = {
            other: frontier for other, frontier in frontiers.items() if other.topic != tp.topic
        }
        same_source = any(
            source_pool.can_be_same_source(
                self.settings, source, frontier, other.topic in self.routes
            )
            for other, frontier in others.items()
        )
        is_lost = tp not in known and any(
            tp.partition < frontier.source_partitions
            # without others, the records are this topic's
            and (frontier.last_record is not None or not others)
            for other, frontier in frontiers.items()
            if other.topic == tp.topic
        )
        return bool(frontiers) and not same_source and not is_lost
