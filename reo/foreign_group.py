"""A consumer group that is not reo's own, on one cluster: reads its committed offsets, and commits on its behalf while it has no members."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from common.errors import ClusterUnreachable, GroupBusy, HangingTransaction
from common.group import list_group_offsets
from common.kafka_clients import REQUEST_TIMEOUT_S, ask_with_retries
from common.routes import Place
from common.source_clusters import Cluster

Result = TypeVar("Result")


class ForeignGroup:
    """Uses the admin client: nothing joins the group."""

    def __init__(self, cluster: Cluster, client: AdminClient, name: str) -> None:
        self.cluster = cluster
        self.client = client
        self.name = name

    def fetch_offsets(self, places: Iterable[Place]) -> dict[Place, int]:
        """The committed offset of each partition; one without a commit is left out. Waits a bounded time for offsets of an open transaction (KIP-447)."""
        request = ConsumerGroupTopicPartitions(self.name, [TopicPartition(*place) for place in places])

        def fetch() -> dict[Place, int]:
            answers = list_group_offsets(self.client, request, decided=True)
            for answer in answers:
                if answer.error is not None:
                    raise KafkaException(answer.error)
            return {Place(answer.topic, answer.partition): answer.offset for answer in answers if answer.offset >= 0}
        return self._retry("reading", fetch)

    def commit(self, offsets: Mapping[Place, int]) -> None:
        """Commit all in one request; GroupBusy when the group has members: the broker then refuses it (see `common.group`)."""
        request = ConsumerGroupTopicPartitions(self.name, [TopicPartition(*place, offset) for place, offset in offsets.items()])

        def alter() -> None:
            answers = self.client.alter_consumer_group_offsets([request], request_timeout=REQUEST_TIMEOUT_S)[self.name]
            for answer in answers.result().topic_partitions:
                if answer.error is not None and answer.error.code() == KafkaError.UNKNOWN_MEMBER_ID:
                    raise GroupBusy(f"group {self.name} of the {self.cluster.name} cluster has members: its offsets can be set only while it is empty. Stop "
                                    "its consumers there (`kafka-consumer-groups.sh --describe --members` lists them), then run this command again")
                if answer.error is not None:
                    raise KafkaException(answer.error)
        self._retry("committing", alter)

    def _retry(self, action: str, request: Callable[[], Result]) -> Result:
        offsets = f"the offsets of group {self.name} at the {self.cluster.name} cluster"
        try:
            return ask_with_retries(f"{action} {offsets}", REQUEST_TIMEOUT_S, request, (ClusterUnreachable, HangingTransaction))
        except HangingTransaction:
            raise HangingTransaction(f"{offsets} are pending: a transaction of its consumers that sent them is neither committed nor aborted. Translate again "
                                     "when it is; `kafka-transactions.sh find-hanging` finds one that hangs") from None
