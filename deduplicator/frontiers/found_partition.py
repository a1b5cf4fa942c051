"""What a start finds of one intermediate partition: the conditions of
`deduplicator.frontiers.start_table`. What takes a request is asked when a row needs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

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


class ClusterState(NamedTuple):
    """What both clusters answered, once for all first frontiers of a start."""

    commits: Mapping[TopicPartition, GroupCommit]
    ends: Mapping[TopicPartition, int]
    """By destination partition."""
    source_admin: AdminClient
    sources: Mapping[Route, topics.Topic]


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
            f" {self.starter.settings.application} has no frontier for {self.tp}: its offsets"
            " expired or were deleted, or something else wrote to the topic."
            f" {recovery if can_recover else 'Copy'} to a new topic, or set"
            " deduplicator.without_frontier=append to append to the existing records from"
            " source.start on"
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
        commit = self.starter.frontier_store.load_frontiers([self.tp]).commits.get(self.tp)
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
        if self.route.is_one_to_one or self._list_intermediate_ends([self.tp])[self.tp] > 0:
            return False
        known = self.starter.consumer_group.group.list_frontiers()
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
    def topic_frontiers(self) -> list[Frontier]:
        """Of any partition of its topic, and of any destination topic."""
        commits = self.cluster.commits
        return [commit.frontier for tp, commit in commits.items() if tp.topic == self.tp.topic]

    @property
    def source_partitions(self) -> int:
        """How many partitions the source had when the copy of its topic began."""
        counts = (frontier.source_partitions for frontier in self.topic_frontiers)
        return max(counts, default=self.cluster.sources[self.route].partitions)

    @property
    def is_added(self) -> bool:
        """Whether the source did not have it then."""
        return self.tp.partition >= self.source_partitions

    @cached_property
    def is_written(self) -> bool:
        """Whether stage one has written to the topic, which it does when every partition has a
        frontier.
        """
        return any(self._list_intermediate_ends(self._topic_partitions).values())

    @property
    def has_copies(self) -> bool:
        """Whether the destination has records of its topic; False where they cannot be told from
        those of other routes.
        """
        outputs = [self.route.get_destination(tp.partition) for tp in self._topic_partitions]
        return self.route.is_one_to_one and any(
            self.starter.frontier_store.get_end_offsets(outputs).values()
        )

    @cached_property
    def _topic_partitions(self) -> list[TopicPartition]:
        return self.starter.consumer_group.list_partitions([self.tp.topic])

    def _list_intermediate_ends(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        return partition_offsets.list_end_offsets(self.starter.consumer_group.admin, tps)
