"""confluent-kafka's AdminClient: a request is sent at once, and its future waits for the response
when the result is read.

No request is retried: a broken connection is an error. A ListOffsets that times out returns a
result without an offset (confluent-kafka 2.16).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from confluent_kafka import (
    OFFSET_INVALID,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    ClusterMetadata,
    ConfigResource,
    DeletedRecords,
    ListOffsetsResultInfo,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from tools.simulator.kafka import admin_answers
from tools.simulator.kafka.client import Client
from tools.simulator.kafka.errors import BrokerError, RequestTimedOut, create_exception
from tools.simulator.kafka.future import Future
from tools.simulator.kafka.list_offsets import ListOffsetsAnswer, answer_list_offsets
from tools.simulator.kafka.network import Network

TIMEOUT_S = 60.0
LEADER_EPOCH_REFRESH_S = 30.0
"""A client refreshed its leader epochs by itself after about this time (measured:
tests/broker/test_candidate_answers.py, a change of leaders).
"""
PartitionKey = tuple[str, int]


class AdminClient(Client):
    """The part of the interface that reo uses."""

    def __init__(self, network: Network, options: Mapping[str, Any]) -> None:
        super().__init__(network, options)
        self.leader_epochs: dict[PartitionKey, int] = {}
        """The leader epochs that the client knows. It does not refresh them when a broker says that
        they are old.
        """
        self.epochs_refreshed_at = self.schedule.now

    def poll(self, timeout: float = -1) -> int:  # noqa: ARG002  (no caller waits here)
        """Run pending callbacks."""
        return self.run_callbacks()

    def _request_for_each(
        self,
        api: str,
        calls: Mapping[Any, Callable[[], Any]],
        options: Mapping[str, Any],
        timeout_answer: Any = None,
        is_sent: bool = True,
    ) -> dict[Any, Future]:
        """One request, with a result for each key. When it times out, as when it is not sent at
        all, each is `timeout_answer`; without one, an error.
        """
        timeout_s = float(options.get("request_timeout", TIMEOUT_S))
        futures = {key: Future(self.schedule) for key in calls}

        def execute() -> dict[Any, Any]:
            answers = {}
            for key, call in calls.items():
                try:
                    answers[key] = call()
                except BrokerError as error:
                    answers[key] = create_exception(error.code, error.reason)
            return answers

        def on_done(answers: dict[Any, Any], error: Exception | None) -> None:
            if isinstance(error, RequestTimedOut) and timeout_answer is not None:
                answers = dict.fromkeys(calls, timeout_answer)
            elif error is not None:
                answers = dict.fromkeys(calls, self._create_request_error(api, error))
            for key, future in futures.items():
                future.set(answers[key])

        if is_sent:
            self.network.send(self.cluster, api, execute, timeout_s, on_done)
        else:
            self.schedule.call_later(timeout_s, lambda: on_done({}, RequestTimedOut()))
        return futures

    def _create_request_error(self, api: str, error: Exception) -> KafkaException:
        self.report_lost_connection(api)
        return (
            create_exception(
                KafkaError._TIMED_OUT,
                "Failed while waiting for response from broker: Local: Timed out",
            )
            if isinstance(error, RequestTimedOut)
            else create_exception(
                KafkaError._TRANSPORT,
                f"{api} worker request failed: Local: Broker transport failure",
            )
        )

    # ---- topics

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Metadata; of the topic, also the leader epochs."""
        found = super().list_topics(topic, timeout)
        self.leader_epochs = {
            key: epoch for key, epoch in self.leader_epochs.items() if key[0] != topic
        }
        return found

    def describe_topics(self, topics: TopicCollection, **options: Any) -> dict[str, Future]:
        """By name."""
        has_operations = bool(options.get("include_authorized_operations"))
        return self._request_for_each(
            "DescribeTopics",
            {
                name: partial(admin_answers.describe_topic, self.cluster, name, has_operations)
                for name in topics.topic_names
            },
            options,
        )

    def create_topics(
        self, new_topics: Sequence[NewTopic], validate_only: bool = False, **options: Any
    ) -> dict[str, Future]:
        """By name."""
        return self._request_for_each(
            "CreateTopics",
            {
                new.topic: partial(admin_answers.create_topic, self.cluster, new, validate_only)
                for new in new_topics
            },
            options,
        )

    def create_partitions(
        self, new_partitions: Sequence[NewPartitions], validate_only: bool = False, **options: Any
    ) -> dict[str, Future]:
        """By name."""
        return self._request_for_each(
            "CreatePartitions",
            {
                new.topic: partial(
                    self.cluster.add_partitions, new.topic, new.new_total_count, validate_only
                )
                for new in new_partitions
            },
            options,
        )

    def delete_topics(self, topics: Sequence[str], **options: Any) -> dict[str, Future]:
        """By name."""
        return self._request_for_each(
            "DeleteTopics",
            {name: partial(self.cluster.delete_topic, name) for name in topics},
            options,
        )

    def describe_configs(
        self, resources: Sequence[ConfigResource], **options: Any
    ) -> dict[ConfigResource, Future]:
        """Names and entries."""
        return self._request_for_each(
            "DescribeConfigs",
            {
                resource: partial(admin_answers.describe_config, self.cluster, resource)
                for resource in resources
            },
            options,
        )

    def incremental_alter_configs(
        self, resources: Sequence[ConfigResource], **options: Any
    ) -> dict[ConfigResource, Future]:
        """Of topics."""
        return self._request_for_each(
            "IncrementalAlterConfigs",
            {
                resource: partial(admin_answers.alter_config, self.cluster, resource)
                for resource in resources
            },
            options,
        )

    # ---- records and their offsets

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
                self.cluster.log(partition.topic, partition.partition).delete(partition.offset)
            )

        return self._request_for_each(
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

        return self._request_for_each(
            "ListOffsets",
            {
                partition: partial(result, partition.topic, partition.partition, spec._value)
                for partition, spec in topic_partition_offsets.items()
            },
            options,
            ListOffsetsResultInfo(OFFSET_INVALID, -1, -1),
        )

    # ---- groups

    def _ask_coordinator(
        self, api: str, calls: Mapping[Any, Callable[[], Any]], options: Mapping[str, Any]
    ) -> dict[Any, Future]:
        return self._request_for_each(api, calls, options, is_sent=not self.has_lost_coordinator())

    def describe_consumer_groups(
        self, group_ids: Sequence[str], **options: Any
    ) -> dict[str, Future]:
        """States and members."""
        has_operations = bool(options.get("include_authorized_operations"))
        return self._ask_coordinator(
            "DescribeConsumerGroups",
            {
                name: partial(admin_answers.describe_group, self.cluster, name, has_operations)
                for name in group_ids
            },
            options,
        )

    def list_consumer_group_offsets(
        self,
        request: Sequence[ConsumerGroupTopicPartitions],
        require_stable: bool = False,
        **options: Any,
    ) -> dict[str, Future]:
        """By group."""
        return self._ask_coordinator(
            "OffsetFetch",
            {
                one.group_id: partial(
                    admin_answers.fetch_offsets, self.cluster, one, require_stable
                )
                for one in request
            },
            options,
        )

    def alter_consumer_group_offsets(
        self, request: Sequence[ConsumerGroupTopicPartitions], **options: Any
    ) -> dict[str, Future]:
        """By group."""
        return self._ask_coordinator(
            "OffsetCommit",
            {
                one.group_id: partial(admin_answers.alter_offsets, self.cluster, one)
                for one in request
            },
            options,
        )

    def delete_consumer_groups(self, group_ids: Iterable[str], **options: Any) -> dict[str, Future]:
        """By group."""
        return self._ask_coordinator(
            "DeleteGroups",
            {name: partial(admin_answers.delete_group, self.cluster, name) for name in group_ids},
            options,
        )
