"""A consumer group of a user, on one cluster: reads its commits, and commits on its behalf while it
has no members.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
)
from confluent_kafka import (
    TopicPartition as ClientTopicPartition,
)
from confluent_kafka.admin import AdminClient

from common.errors import ClusterUnreachable, GroupBusy, HangingTransaction, MoveRefused
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S, ask_with_retries
from common.kafka.consumer_group import list_group_offsets
from common.kafka.coordinator_client import CoordinatorClient
from common.routes import TopicPartition
from common.settings.clusters import Cluster

Result = TypeVar("Result")


class UserCommit(NamedTuple):
    """What a group has committed for a partition: the next offset to read, and its metadata, a
    string of the application's. Kafka Streams has its stream time there (KAFKA-7994).
    """

    offset: int
    metadata: str = ""


class UserGroup:
    """Uses the admin client: nothing joins the group."""

    def __init__(self, coordinator: CoordinatorClient, name: str) -> None:
        self.coordinator = coordinator
        self.cluster = coordinator.cluster
        self.name = name

    def fetch_offsets(
        self, topic_partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The committed offset of each partition; see `fetch_commits`."""
        return {tp: commit.offset for tp, commit in self.fetch_commits(topic_partitions).items()}

    def fetch_commits(
        self, topic_partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, UserCommit]:
        """What is committed for each partition; one without a commit is left out. Waits a bounded
        time for offsets of an open transaction (KIP-447).
        """
        request = ConsumerGroupTopicPartitions(
            self.name, [ClientTopicPartition(*tp) for tp in topic_partitions]
        )

        def fetch(client: AdminClient) -> dict[TopicPartition, UserCommit]:
            answers = list_group_offsets(client, request, require_stable=True)
            for answer in answers:
                if answer.error is not None:
                    raise KafkaException(answer.error)
            return {
                TopicPartition(answer.topic, answer.partition): UserCommit(
                    answer.offset, answer.metadata or ""
                )
                for answer in answers
                if answer.offset >= 0
            }

        return self._retry("reading", fetch)

    def list_readers(self, topics: Container[str]) -> list[str] | None:
        """The members that have partitions of these topics, by client id and host; None while the
        group is rebalancing.
        """
        description = self._retry("asking for members and", self._describe)
        if description is None:
            return ["members whose topics this principal may not describe"]
        if description.members and description.state != ConsumerGroupState.STABLE:
            return None
        return sorted(
            f"{member.client_id} on {member.host}"
            for member in description.members
            if member.assignment
            and any(tp.topic in topics for tp in member.assignment.topic_partitions)
        )

    def has_members(self) -> bool:
        """Whether a consumer lives in the group."""
        description = self._retry("asking for members and", self._describe)
        return description is None or bool(description.members)

    def _describe(self, client: AdminClient) -> Any:
        """The group; None when it has members that subscribe to topics which this principal may not
        describe (KIP-848).
        """
        try:
            return client.describe_consumer_groups([self.name], request_timeout=REQUEST_TIMEOUT_S)[
                self.name
            ].result()
        except KafkaException as refused:
            if refused.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise
            return None

    def commit_forward(self, commits: Mapping[TopicPartition, UserCommit]) -> None:
        """Commit those offsets that are ahead of the committed ones, in one request; GroupBusy when
        the group has members.

        Kafka has no commit on a condition. So the group is described, its offsets are read, and
        they are committed, in this order and at once: for the group to be moved back, a consumer
        would have to join, commit and leave between these requests, or somebody to set its offsets
        by hand.
        """

        def commit_once(client: AdminClient) -> None:
            if self.has_members():
                raise self._build_busy_error()
            present = self.fetch_offsets(commits)
            ahead = {
                tp: commit for tp, commit in commits.items() if commit.offset > present.get(tp, -1)
            }
            if ahead:
                self._commit(client, ahead)

        # all of it: when the answer to a commit was lost, a consumer can have come and gone
        self._retry("committing", commit_once)

    def _commit(self, client: AdminClient, commits: Mapping[TopicPartition, UserCommit]) -> None:
        """Commit all in one request, once; GroupBusy when the group has members: the broker then
        refuses it (see `common.kafka.consumer_group`). MoveRefused when it is of another kind.
        """
        request = ConsumerGroupTopicPartitions(
            self.name, [ClientTopicPartition(*tp, *commit) for tp, commit in commits.items()]
        )
        answers = client.alter_consumer_group_offsets([request], request_timeout=REQUEST_TIMEOUT_S)[
            self.name
        ]
        for answer in answers.result().topic_partitions:
            if answer.error is None:
                continue
            if answer.error.code() == KafkaError.UNKNOWN_MEMBER_ID:
                raise self._build_busy_error()
            # a commit creates a group that does not exist
            if answer.error.code() == KafkaError.GROUP_ID_NOT_FOUND:
                raise MoveRefused(
                    f"group {self.name} of the {self.cluster.name} cluster takes no offsets: a"
                    " group of another kind has this name there, for example a share group"
                    " (KIP-932)",
                    "Delete that one (`kafka-groups.sh --list` shows the kinds), or leave this"
                    " group out with --groups",
                )
            raise KafkaException(answer.error)

    def _build_busy_error(self) -> GroupBusy:
        return GroupBusy(
            f"group {self.name} of the {self.cluster.name} cluster has members: its offsets can be"
            " set only while it is empty. Stop its consumers there (`kafka-consumer-groups.sh"
            " --describe --members` lists them), then run this command again"
        )

    def _retry(self, action: str, request: Callable[[AdminClient], Result]) -> Result:
        offsets = f"the offsets of group {self.name} at the {self.cluster.name} cluster"
        try:
            return self.coordinator.ask(
                f"{action} {offsets}", request, (ClusterUnreachable, HangingTransaction)
            )
        except HangingTransaction:
            raise HangingTransaction(
                f"{offsets} are pending: a transaction of its consumers that sent them is neither"
                " committed nor aborted. Translate again when it is; `kafka-transactions.sh"
                " find-hanging` finds one that hangs"
            ) from None


def list_groups(cluster: Cluster, client: AdminClient) -> list[str]:
    """The names of all consumer groups that the principal may describe, sorted."""

    def fetch() -> list[str]:
        answer = client.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S).result()
        for error in answer.errors:
            raise error
        return sorted(group.group_id for group in answer.valid)

    return ask_with_retries(
        f"listing the consumer groups of the {cluster.name} cluster", REQUEST_TIMEOUT_S, fetch
    )
