"""A consumer group of a user, on one cluster: reads its commits, and commits on its behalf while it
has no members.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, TypeVar

from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from common.errors import ClusterUnreachable, GroupBusy, HangingTransaction, MoveRefused
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S, ask_with_retries
from common.kafka.consumer_group import Commit, ConsumerGroup, try_to_describe
from common.routes import TopicPartition
from common.settings.clusters import Cluster

Result = TypeVar("Result")


class UserGroup(ConsumerGroup):
    """Waits a bounded time for offsets of an open transaction."""

    errors_to_retry = (ClusterUnreachable, HangingTransaction)

    def ask(self, doing: str, request: Callable[[AdminClient], Result]) -> Result:
        """HangingTransaction when offsets stay undecided."""
        try:
            return super().ask(doing, request)
        except HangingTransaction:
            raise HangingTransaction(
                f"the offsets of group {self.name} at the {self.cluster.name} cluster are pending:"
                " a transaction of its consumers that sent them is neither committed nor aborted."
                " Translate again when it is; `kafka-transactions.sh find-hanging` finds one that"
                " hangs"
            ) from None

    def fetch_offsets(
        self, topic_partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The committed offset of each partition that has one."""
        return {tp: commit.offset for tp, commit in self.list_commits(topic_partitions).items()}

    def list_readers(self, topics: Container[str]) -> list[str] | None:
        """The members that have partitions of these topics, by client id and host; None while the
        group is rebalancing.
        """
        description = self._try_to_describe()
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
        description = self._try_to_describe()
        return description is None or bool(description.members)

    def _try_to_describe(self) -> Any:
        return self.ask("describing", lambda client: try_to_describe(client, self.name))

    def commit_forward(self, commits: Mapping[TopicPartition, Commit]) -> None:
        """Commit those offsets that are ahead of the committed ones; GroupBusy when the group has
        members. Kafka has no commit on a condition: for the group to be moved back, a consumer
        would have to join, commit and leave between these requests.
        """

        def commit_ahead(client: AdminClient) -> None:
            if self.has_members():
                raise self.build_busy_error()
            present = self.fetch_offsets(commits)
            ahead = {
                tp: commit for tp, commit in commits.items() if commit.offset > present.get(tp, -1)
            }
            if ahead:
                self.commit_once(client, ahead)

        # all of it: when the answer to a commit was lost, a consumer can have come and gone
        self.ask("committing the offsets", commit_ahead)

    def commit_once(self, client: AdminClient, commits: Mapping[TopicPartition, Commit]) -> None:
        """MoveRefused when the group is of another kind."""
        try:
            super().commit_once(client, commits)
        except KafkaException as failed:
            # a commit creates a group that does not exist
            if failed.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise
            raise MoveRefused(
                f"group {self.name} of the {self.cluster.name} cluster takes no offsets: a group of"
                " another kind has this name there, for example a share group (KIP-932)",
                "Delete that one (`kafka-groups.sh --list` shows the kinds), or leave this group"
                " out with --groups",
            ) from None

    def build_busy_error(self) -> GroupBusy:
        """Its consumers are to be stopped."""
        return GroupBusy(
            f"group {self.name} of the {self.cluster.name} cluster has members. Stop its consumers"
            " there (`kafka-consumer-groups.sh --describe --members` lists them), then run this"
            " command again"
        )


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
