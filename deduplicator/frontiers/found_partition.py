"""What a start finds of one intermediate partition: the conditions of
`deduplicator.frontiers.start_table`. What takes a request is asked when a row needs it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient

from common import partition_mapping, source_pool
from common.errors import FrontierLost
from common.frontier import Frontier, check_not_moved
from common.kafka import partition_offsets, topics
from common.kafka.partition_offsets import GroupCommit
from common.routes import SAME, Route, TopicPartition
from deduplicator.frontiers.committed_frontiers import TransactionUndecided
from deduplicator.frontiers.start_table import START, Decision, find_row

if TYPE_CHECKING:
    from deduplicator.frontiers.start import PartitionStarter


@dataclass
class ClusterState:
    """What both clusters answered, once for all first frontiers of a start: asked for each
    partition, a start would take as many requests as there are partitions, about all of them.
    """

    commits: Mapping[TopicPartition, GroupCommit]
    ends: Mapping[TopicPartition, int]
    """By destination partition."""
    source_admin: AdminClient
    sources: Mapping[Route, topics.Topic]
    starter: PartitionStarter
    missing: Collection[TopicPartition]
    """The partitions without a frontier."""
    intermediate_ends: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    """By topic, as far as they were asked for."""
    have_copies: dict[str, bool] = field(default_factory=dict)
    """By intermediate topic: whether the destination has records of it, where that was asked."""

    @cached_property
    def topic_frontiers(self) -> dict[str, list[Frontier]]:
        """By intermediate topic, of any partition, and of any destination topic."""
        frontiers: dict[str, list[Frontier]] = {}
        for tp, commit in self.commits.items():
            frontiers.setdefault(tp.topic, []).append(commit.frontier)
        return frontiers

    @cached_property
    def epochs(self) -> dict[str, int]:
        """The highest of each topic's frontiers."""
        return {
            topic: max(one.epoch for one in frontiers)
            for topic, frontiers in self.topic_frontiers.items()
        }

    @cached_property
    def source_partitions(self) -> dict[str, int]:
        """How many partitions each topic's source had when its copy began."""
        return {
            topic: max(one.source_partitions for one in frontiers)
            for topic, frontiers in self.topic_frontiers.items()
        }

    @cached_property
    def commits_since(self) -> Mapping[TopicPartition, GroupCommit]:
        """Of the missing ones, read after `ends`."""
        return self.starter.frontier_store.load_frontiers(self.missing).commits

    @cached_property
    def group_frontiers(self) -> dict[TopicPartition, Frontier]:
        """All that the group has."""
        return self.starter.consumer_group.group.list_frontiers()

    def list_intermediate_ends(self, topic: str) -> dict[TopicPartition, int]:
        """Of all partitions of an intermediate topic."""
        if topic not in self.intermediate_ends:
            consumer_group = self.starter.consumer_group
            self.intermediate_ends[topic] = partition_offsets.list_end_offsets(
                consumer_group.admin, consumer_group.list_partitions([topic])
            )
        return self.intermediate_ends[topic]

    def has_copies(self, route: Route) -> bool:
        """Whether any destination partition of a route that is one to one has records."""
        topic = route.intermediate_topic
        if topic not in self.have_copies:
            outputs = [
                route.get_destination(tp.partition) for tp in self.list_intermediate_ends(topic)
            ]
            ends = self.starter.frontier_store.get_end_offsets(outputs)
            self.have_copies[topic] = any(ends.values())
        return self.have_copies[topic]


class FoundPartition:
    """One intermediate partition at its start."""

    cluster: ClusterState
    """Set before anything else is asked of a partition without a frontier."""

    def __init__(
        self,
        starter: PartitionStarter,
        tp: TopicPartition,
        commit: GroupCommit | None,
        destination: topics.Topic,
        is_lost: bool = False,
    ) -> None:
        self.starter = starter
        self.tp = tp
        self.route = starter.routes[tp.topic]
        self.commit: GroupCommit | None = commit
        """Also one of a destination topic that is gone."""
        self.destination = destination
        self.is_lost: bool = is_lost
        """Whether the group has lost this commit, which this worker, or the store, knows."""
        self.may_append: bool = starter.settings.deduplicator.without_frontier == "append"
        self.starts_at_latest: bool = starter.settings.start.kind == "latest"
        self.is_new_topic: bool = tp.topic in starter.new_topics
        self.is_started: bool = bool(starter.started_topics)
        """Whether the service had frontiers when this process began."""
        self.has_other_topics: bool = bool(starter.started_topics - {tp.topic})
        """Whether it had frontiers of other topics."""

    def decide(self) -> Decision:
        """How the copy goes on: "continue", "commit again" or "begin". MoveRefused, FrontierLost or
        TransactionUndecided for the other decisions.
        """
        decision = find_row(START, self).decided
        if decision == "ask again":
            output = self.route.get_destination(self.tp.partition)
            raise TransactionUndecided(f"another worker has begun to copy to {output}")
        if decision == "refuse":
            if self.frontier:
                check_not_moved(self.route.get_source(self.tp.partition), self.frontier)
            raise self._build_lost_error()
        return decision

    def _build_lost_error(self) -> FrontierLost:
        assert self.filled is not None
        can_recover = self.route.is_one_to_one and self.starter.is_recoverable
        recovery = "`reo recover` finds the frontier from the data. Otherwise copy"
        return FrontierLost(
            f"{self.filled} has records (it ends at {self.cluster.ends[self.filled]}), but group"
            f" {self.starter.settings.application} has no frontier for {self.tp}: `application` was"
            " changed (then change it back), the group's offsets expired or were deleted, or"
            " something else wrote to the topic."
            f" {recovery if can_recover else 'Copy'} to a new topic, or set"
            " deduplicator.without_frontier=append, which writes all source records from"
            " source.start on after the existing ones: if those are a copy, each record is there"
            " twice then",
            topic=self.tp.topic,
        )

    @property
    def frontier(self) -> Frontier | None:
        """Its frontier, if it is of the present destination topic."""
        if self.commit is None:
            return None
        frontier = self.commit.frontier
        return frontier if frontier.destination_topic_id == self.destination.topic_id else None

    @property
    def has_moved(self) -> bool:
        """Whether its topic has moved to the destination (`reo cutover run`)."""
        return self.commit is not None and self.commit.frontier.move is not None

    @property
    def outputs(self) -> list[TopicPartition]:
        """Every destination partition that its records can go to."""
        fixed = partition_mapping.parse_fixed_partition(self.route.mapping)
        if self.route.mapping == SAME or fixed is not None:
            return [self.route.get_destination(self.tp.partition if fixed is None else fixed)]
        return list(map(self.route.get_destination, range(self.destination.partitions)))

    @cached_property
    def filled(self) -> TopicPartition | None:
        """The first of these that has records."""
        return next((tp for tp in self.outputs if self.cluster.ends[tp] > 0), None)

    @property
    def has_begun_since(self) -> bool:
        """Whether another worker has created the first frontier since this one looked for it, and
        has copied records.

        That happens when this process stood still in between, and lost the partition. A first
        frontier is committed before any record is written. And a coordinator that resigns can
        answer that a group has no offsets (Kafka 3.9 and before).
        """
        commit = self.cluster.commits_since.get(self.tp)
        return (
            commit is not None and commit.frontier.destination_topic_id == self.destination.topic_id
        )

    @property
    def is_from_other_sources(self) -> bool:
        """Whether the records at a destination that is not one to one are certainly not this
        partition's: it is new, and others were copied there before.

        Nothing was ever written to its intermediate partition, the group has frontiers for this
        destination, and none of them can be of the same source under another intermediate topic, or
        shows that this one was lost: a run begins only when every partition has one. A topic all of
        whose frontiers were deleted with it looks the same as a new one.
        """
        # without an end, a broker has not heard of the partition yet: nothing is certain
        end = self.cluster.list_intermediate_ends(self.tp.topic).get(self.tp)
        if self.route.is_one_to_one or end != 0:
            return False
        known = self.cluster.group_frontiers
        frontiers = {
            tp: frontier
            for tp, frontier in known.items()
            if frontier.destination_topic_id == self.destination.topic_id
        }
        others = {tp: one for tp, one in frontiers.items() if tp.topic != self.tp.topic}
        same_source = any(
            source_pool.can_be_same_source(
                self.starter.settings,
                self.cluster.sources[self.route],
                frontier,
                tp.topic in self.starter.routes,
            )
            for tp, frontier in others.items()
        )
        is_lost = self.tp not in known and any(
            self.tp.partition < frontier.source_partitions
            # without others, the records are this topic's
            and (frontier.last_record is not None or not others)
            for tp, frontier in frontiers.items()
            if tp.topic == self.tp.topic
        )
        return bool(frontiers) and not same_source and not is_lost

    @property
    def topic_frontiers(self) -> Sequence[Frontier]:
        """Of any partition of its topic, and of any destination topic."""
        return self.cluster.topic_frontiers.get(self.tp.topic, ())

    @property
    def epoch(self) -> int:
        """Above those of the runs that have written before: what they wrote is not of this copy."""
        return self.cluster.epochs.get(self.tp.topic, -1) + 1

    @property
    def source_partitions(self) -> int:
        """How many partitions the source had when the copy of its topic began."""
        known = self.cluster.source_partitions.get(self.tp.topic)
        return self.cluster.sources[self.route].partitions if known is None else known

    @property
    def is_added(self) -> bool:
        """Whether the source did not have it then."""
        return self.tp.partition >= self.source_partitions

    @property
    def is_written(self) -> bool:
        """Whether stage one has written to the topic, which it does when every partition has a
        frontier.
        """
        return any(self.cluster.list_intermediate_ends(self.tp.topic).values())

    @property
    def has_copies(self) -> bool:
        """Whether the destination has records of its topic; False where they cannot be told from
        those of other routes.
        """
        return self.route.is_one_to_one and self.cluster.has_copies(self.route)
