"""A consumer group that is not reo's own, on one cluster: what it has committed, and a commit on its behalf while nobody is in it."""

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


class OtherGroup:
    """Asked with the admin client: nothing joins the group."""

    def __init__(self, cluster: Cluster, client: AdminClient, name: str) -> None:
        self.cluster = cluster
        self.client = client
        self.name = name

    def offsets(self, places: Iterable[Place]) -> dict[Place, int]:
        """The next offset of each partition; one without a commit is left out. Offsets of an open transaction are waited for, within bounds (KIP-447)."""
        asked = ConsumerGroupTopicPartitions(self.name, [TopicPartition(*place) for place in places])

        def ask() -> dict[Place, int]:
            answers = list_group_offsets(self.client, asked, decided=True)
            for answer in answers:
                if answer.error is not None:
                    raise KafkaException(answer.error)
            return {Place(answer.topic, answer.partition): answer.offset for answer in answers if answer.offset >= 0}
        return self._patiently("reading", ask)

    def commit(self, offsets: Mapping[Place, int]) -> None:
        """Commit all in one request; GroupBusy when the group has members: its broker refuses that (see `common.group`)."""
        places = [TopicPartition(*place, offset) for place, offset in offsets.items()]

        def ask() -> None:
            answers = self.client.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(self.name, places)], request_timeout=REQUEST_TIMEOUT_S)[self.name]
            for answer in answers.result().topic_partitions:
                if answer.error is not None and answer.error.code() == KafkaError.UNKNOWN_MEMBER_ID:
                    raise GroupBusy(f"group {self.name} of the {self.cluster.name} cluster has members: its offsets can be set only while it is empty. Stop "
                                    "its consumers there (`kafka-consumer-groups.sh --describe --members` shows them), then run this again")
                if answer.error is not None:
                    raise KafkaException(answer.error)
        self._patiently("committing", ask)

    def _patiently(self, doing: str, ask: Callable[[], Result]) -> Result:
        which = f"the offsets of group {self.name} at the {self.cluster.name} cluster"
        try:
            return ask_with_retries(f"{doing} {which}", REQUEST_TIMEOUT_S, ask, (ClusterUnreachable, HangingTransaction))
        except HangingTransaction:
            raise HangingTransaction(f"{which} are undecided: a transaction of its consumers that sent them is neither committed nor aborted. Translate again "
                                     "when it is; one that hangs is found with `kafka-transactions.sh find-hanging`") from None
