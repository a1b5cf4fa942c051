"""confluent-kafka's AdminClient: topics and groups by `topic_admin` and `group_admin`; here records
and their offsets.

A ListOffsets that times out returns a result without an offset (confluent-kafka 2.16).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import ClusterMetadata, DeletedRecords, ListOffsetsResultInfo, OffsetSpec

from tools.simulator.kafka.errors import BrokerError
from tools.simulator.kafka.future import Future
from tools.simulator.kafka.group_admin import GroupAdmin
from tools.simulator.kafka.list_offsets import ListOffsetsAnswer, answer_list_offsets
from tools.simulator.kafka.network import Network
from tools.simulator.kafka.topic_admin import TopicAdmin

LEADER_EPOCH_REFRESH_S = 30.0
"""A client refreshed its leader epochs by itself after about this time (measured:
tests/broker/test_candidate_answers.py, a change of leaders).
"""
PartitionKey = tuple[str, int]


class AdminClient(TopicAdmin, GroupAdmin):
    """The part of the interface that reo uses."""

    def __init__(self, network: Network, options: Mapping[str, Any]) -> None:
        super().__init__(network, options)
        self.leader_epochs: dict[PartitionKey, int] = {}
        """The leader epochs that the client knows. It does not refresh them when a broker says that
        they are old.
        """
        self.epochs_refreshed_at = self.schedule.now

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Metadata; of the topic, also the leader epochs."""
        found = super().list_topics(topic, timeout)
        self.leader_epochs = {
            key: epoch for key, epoch in self.leader_epochs.items() if key[0] != topic
        }
        return found

    def _check_epoch(self, topic: str, partition: int) -> None:
        if self.schedule.now > self.epochs_refreshed_at + LEADER_EPOCH_REFRESH_S:
            self.leader_epochs, self.epochs_refreshed_at = {}, self.schedule.now
        now = self.cluster.log(topic, partition).leader_epoch
        if self.leader_epochs.setdefault((topic, partition), now) < now:
            raise BrokerError(KafkaError.FENCED_LEADER_EPOCH)

    def delete_records(
        self, topic_partition_offsets: Sequence[TopicPartition], **options: Any
    ) -> dict[TopicPartition, Future]:
        """Delete the records below these offsets."""

        def any_known() -> bool:
            return any(
                self.cluster.find_log(partition.topic, partition.partition)
                for partition in topic_partition_offsets
            )

        def delete(partition: TopicPartition) -> DeletedRecords:
            self._check_leader(partition.topic, partition.partition, any_known)
            return DeletedRecords(
                self.cluster.delete_records(partition.topic, partition.partition, partition.offset)
            )

        return self.request_for_each(
            "DeleteRecords",
            {partition: partial(delete, partition) for partition in topic_partition_offsets},
            options,
        )

    def _check_leader(self, topic: str, partition: int, any_known: Callable[[], bool]) -> None:
        """The client looks up the leaders of the partitions first."""
        if self.cluster.find_log(topic, partition) is None:
            if not any_known():
                raise BrokerError(KafkaError._NOENT)
            raise BrokerError(
                KafkaError._UNKNOWN_PARTITION
                if topic in self.cluster.topics
                else KafkaError.UNKNOWN_TOPIC_OR_PART
            )

    def list_offsets(
        self,
        topic_partition_offsets: Mapping[TopicPartition, OffsetSpec],
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        **options: Any,
    ) -> dict[TopicPartition, Future]:
        """The offset of each partition that its OffsetSpec asks for."""
        committed = isolation_level == IsolationLevel.READ_COMMITTED
        if not topic_partition_offsets:
            return {}

        def any_known() -> bool:
            return any(
                self.cluster.find_log(partition.topic, partition.partition)
                for partition in topic_partition_offsets
            )

        def result(topic: str, partition: int, spec: int) -> ListOffsetsResultInfo:
            self._check_leader(topic, partition, any_known)
            self._check_epoch(topic, partition)
            answer: ListOffsetsAnswer = answer_list_offsets(
                self.cluster, topic, partition, spec, committed
            )
            if answer.code:
                raise BrokerError(answer.code)
            return ListOffsetsResultInfo(answer.offset, answer.timestamp_ms, answer.leader_epoch)

        return self.request_for_each(
            "ListOffsets",
            {
                partition: partial(result, partition.topic, partition.partition, spec._value)
                for partition, spec in topic_partition_offsets.items()
            },
            options,
            ListOffsetsResultInfo(OFFSET_INVALID, -1, -1),
        )
