"""What a worker reads when it starts: the group's commits, which hold the frontiers, and the
topics; with the clients for that.

A commit of a worker that died can be undecided: its transaction is open until the coordinator ends
it. Then no frontier is returned, and the start is tried again (`TransactionUndecided`), up to the
time after which no transaction of this service can still be open.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TypeVar

from common import clock
from common.errors import ClusterUnreachable, HangingTransaction
from common.kafka import partition_offsets, topics
from common.kafka.clients import create_admin_client, create_reader
from common.kafka.consumer_group import Group, create_commit_reader
from common.kafka.partition_offsets import GroupCommit
from common.liveness import Liveness
from common.routes import Route, TopicPartition
from common.settings import Settings

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")
BEYOND_TIMEOUT_S = 20
"""How long offsets may stay undecided after the transaction timeout: the coordinator looks for
expired transactions every 10 s.
"""
UNSEEN_S = 15
"""A worker that has not looked for so long stood still: what it finds now can be another
transaction, also of a worker that has its partitions now.
"""


class TransactionUndecided(Exception):
    """A start has met another producer's transaction. It is tried again after a poll: the worker
    may have lost these partitions to who writes it.
    """


class WorkerGroup:
    """The group as a worker reads it: the frontiers in its commits, and the clients of the
    destination cluster.
    """

    def __init__(self, settings: Settings, liveness: Liveness) -> None:
        self.settings = settings
        self.liveness = liveness
        self.reader = create_reader(settings.destination_cluster, settings)
        self.commit_reader = create_commit_reader(settings.destination_cluster, settings)
        self.admin = create_admin_client(settings.destination_cluster, settings)
        self.group = Group(settings)
        self.undecided_since: float | None = None
        """When the starts that wait for a transaction began, on the monotonic clock."""
        self.undecided_at = 0.0
        """When the last one found it undecided."""
        self.undecided_s = settings.deduplicator.transaction_timeout_ms / 1000 + BEYOND_TIMEOUT_S

    def describe_topics(self, names: Collection[str]) -> dict[str, topics.Topic]:
        """Those of these topics that exist on the destination cluster."""
        return topics.look_up(self.settings.destination_cluster, self.admin, names)

    def list_partitions(self, names: Collection[str]) -> list[TopicPartition]:
        """The partitions of these topics."""
        return [
            TopicPartition(name, partition)
            for name, topic in self.describe_topics(names).items()
            for partition in range(topic.partitions)
        ]

    def describe_stored_destinations(
        self, routes: Collection[Route], identity: str
    ) -> dict[str, topics.Topic] | None:
        """The destinations outside of Kafka, by intermediate topic, whose partitions they have;
        None when an intermediate topic is missing.
        """
        described = self.describe_topics({route.intermediate_topic for route in routes})
        if len(described) < len(routes):
            return None
        return {
            route.intermediate_topic: topics.Topic(
                route.destination_topic,
                identity,
                described[route.intermediate_topic].partitions,
                "",
            )
            for route in routes
        }

    def is_assigned(self, topic_partitions: Collection[TopicPartition], member_id: str) -> bool:
        """Whether the coordinator says that this member has these partitions; not while the group
        is rebalancing, or the cluster does not answer.
        """
        try:
            assigned = self.group.list_assigned(member_id)
        except ClusterUnreachable as unreachable:
            log.warning("which partitions this worker has cannot be told yet: %s", unreachable)
            return False
        return assigned is not None and assigned.issuperset(topic_partitions)

    def list_started_topics(self) -> set[str]:
        """The topics of which the group has a frontier for any partition."""
        return self._wait_for_answer(
            "which frontiers the group has",
            lambda: {tp.topic for tp in self.group.list_frontiers()},
        )

    def describe_intermediates(self, names: Collection[str]) -> dict[str, topics.Topic]:
        """As `describe_topics`; waits while the cluster does not answer."""
        return self._wait_for_answer("the intermediate topics", lambda: self.describe_topics(names))

    def _wait_for_answer(self, what: str, request: Callable[[], Answer]) -> Answer:
        while True:
            self.liveness.beat()
            try:
                return request()
            except ClusterUnreachable as unreachable:
                self.liveness.report_waiting("destination")
                log.warning("%s cannot be read yet: %s", what, unreachable)
                clock.sleep(0.2)

    def load_commits(
        self, names: Collection[str], own: Collection[TopicPartition] = ()
    ) -> dict[TopicPartition, GroupCommit]:
        """Every commit of the group on these intermediate topics.

        TransactionUndecided while a transaction with a commit for one of its `own` partitions is
        open, which this worker takes over. The commits of other partitions are those before any
        open transaction: their workers always have one open under load.
        """
        while True:
            self.liveness.beat()
            try:
                # not its own: the group can lose those between the two requests
                others = set(self.list_partitions(names)).difference(own)
                try:
                    return partition_offsets.read_commits(
                        self.commit_reader, sorted(others)
                    ) | partition_offsets.read_commits(self.reader, own)
                except (ClusterUnreachable, HangingTransaction):
                    # a consumer cannot tell undecided offsets from a cluster that does not answer:
                    # both time out
                    self.group.list_commits(own)
                    self.undecided_since = None
                    raise
            except HangingTransaction as hanging:
                raise self.build_undecided_error(str(hanging)) from None
            except ClusterUnreachable as unreachable:
                self.undecided_since = None
                log.warning("the frontier cannot be read yet: %s", unreachable)
                self.liveness.report_waiting("destination")
            clock.sleep(0.2)

    def build_undecided_error(self, what: str) -> TransactionUndecided | HangingTransaction:
        """The error to raise: HangingTransaction when that is so for longer than any transaction of
        this service lasts.
        """
        now = clock.monotonic()
        if self.undecided_since is None or now > self.undecided_at + UNSEEN_S:
            self.undecided_since = now
        self.undecided_at = now
        if now > self.undecided_since + self.undecided_s:
            return HangingTransaction(f"{what} (undecided for {self.undecided_s:.0f} s)")
        self.liveness.report_waiting("transaction")
        return TransactionUndecided(what)
