"""confluent-kafka's AdminClient: each request is sent at once, and its future waits for the
response when the result is read.

No request is retried: a broken connection is an error, and a ListOffsets that times out returns a
result without an offset (confluent-kafka 2.16).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from confluent_kafka import (
    OFFSET_INVALID,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    Node,
    TopicCollection,
    TopicPartition,
    TopicPartitionInfo,
)
from confluent_kafka.admin import (
    AclOperation,
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConsumerGroupDescription,
    DeletedRecords,
    DescribeClusterResult,
    ListOffsetsResultInfo,
    MemberAssignment,
    MemberDescription,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)

from simulator.kafka.client import Client
from simulator.kafka.cluster import Topic
from simulator.kafka.config import BROKER_CONFIG, merge_config
from simulator.kafka.errors import (
    BrokerError,
    RequestTimedOut,
    create_exception,
    create_topic_partition,
)
from simulator.kafka.future import Future
from simulator.kafka.list_offsets import ListOffsetsAnswer, answer_list_offsets
from simulator.kafka.network import Network

TOPIC_OPERATIONS = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
GROUP_OPERATIONS = (
    AclOperation.READ,
    AclOperation.DELETE,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
CLUSTER_OPERATIONS = (
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
)
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

    def poll(self, timeout: float = -1) -> int:  # noqa: ARG002  (no caller waits here)
        """Run pending callbacks."""
        return self.run_callbacks()

    def _request(
        self,
        api: str,
        execute: Callable[[], Any],
        options: Mapping[str, Any],
        timeout_answer: Any = None,
    ) -> Future:
        """One request. When it times out, the result is `timeout_answer`; without one, it is an
        error.
        """
        timeout_s = float(options.get("request_timeout", TIMEOUT_S))
        future = Future(self.schedule)

        def on_done(value: Any, error: Exception | None) -> None:
            if error is None or (timeout_answer is not None and isinstance(error, RequestTimedOut)):
                future.set(value if error is None else timeout_answer)
            elif isinstance(error, BrokerError):
                future.fail(create_exception(error.code, error.reason))
            elif isinstance(error, RequestTimedOut):
                self.report_lost_connection(api)
                future.fail(
                    create_exception(
                        KafkaError._TIMED_OUT,
                        "Failed while waiting for response from broker: Local: Timed out",
                    )
                )
            else:
                self.report_lost_connection(api)
                future.fail(
                    create_exception(
                        KafkaError._TRANSPORT,
                        f"{api} worker request failed: Local: Broker transport failure",
                    )
                )

        self.network.send(self.cluster, api, execute, timeout_s, on_done)
        return future

    def _request_for_each(
        self,
        api: str,
        calls: Mapping[Any, Callable[[], Any]],
        options: Mapping[str, Any],
        timeout_answer: Any = None,
    ) -> dict[Any, Future]:
        """One request, with a result for each key."""
        futures = {key: Future(self.schedule) for key in calls}

        def execute() -> dict[Any, Any]:
            answers = {}
            for key, call in calls.items():
                try:
                    answers[key] = call()
                except BrokerError as error:
                    answers[key] = create_exception(error.code, error.reason)
            return answers

        request_future = self._request(
            api,
            execute,
            options,
            dict.fromkeys(calls, timeout_answer) if timeout_answer is not None else None,
        )

        def complete_all() -> None:
            for key, future in futures.items():
                future.set_from_answer(request_future, key)

        request_future.on_completed(complete_all)
        return futures

    # ---- the cluster and its topics

    def describe_cluster(self, **options: Any) -> Future:
        """Its id and nodes."""
        operations: Any = (
            [*CLUSTER_OPERATIONS] if options.get("include_authorized_operations") else None
        )

        def describe() -> DescribeClusterResult:
            nodes = [
                Node(number, self.cluster.name, 9092)
                for number in range(1, self.cluster.brokers + 1)
            ]
            return DescribeClusterResult(self._node(), nodes, self.cluster.cluster_id, operations)

        return self._request("DescribeCluster", describe, options)

    def _node(self) -> Any:
        return Node(1, self.cluster.name, 9092)

    def describe_topics(self, topics: TopicCollection, **options: Any) -> dict[str, Future]:
        """By name."""
        operations: Any = (
            [*TOPIC_OPERATIONS] if options.get("include_authorized_operations") else None
        )

        def describe(name: str) -> TopicDescription:
            topic, node = self._topic(name), self._node()
            return TopicDescription(
                name,
                topic.id,
                name.startswith("__"),
                [
                    TopicPartitionInfo(number, node, [node], [node])
                    for number in range(len(topic.logs))
                ],
                operations,
            )

        return self._request_for_each(
            "DescribeTopics",
            {name: partial(describe, name) for name in topics.topic_names},
            options,
        )

    def _topic(self, name: str) -> Topic:
        if name not in self.cluster.topics:
            raise BrokerError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return self.cluster.topics[name]

    def create_topics(
        self, new_topics: Sequence[NewTopic], validate_only: bool = False, **options: Any
    ) -> dict[str, Future]:
        """By name."""

        def create(new: NewTopic) -> None:
            if new.topic in self.cluster.topics:
                raise BrokerError(
                    KafkaError.TOPIC_ALREADY_EXISTS, f"Topic '{new.topic}' already exists."
                )
            if new.replication_factor > self.cluster.brokers:
                raise BrokerError(
                    KafkaError.INVALID_REPLICATION_FACTOR,
                    f"Unable to replicate the partition {new.replication_factor} time(s): The"
                    f" target replication factor of {new.replication_factor} cannot be reached"
                    f" because only {self.cluster.brokers} broker(s) are registered.",
                )
            config = {name: str(value) for name, value in (new.config or {}).items()}
            merge_config(self.cluster.defaults, config)
            if not validate_only:
                self.cluster.create_topic(new.topic, max(1, new.num_partitions), config)

        return self._request_for_each(
            "CreateTopics", {new.topic: partial(create, new) for new in new_topics}, options
        )

    def create_partitions(
        self, new_partitions: Sequence[NewPartitions], validate_only: bool = False, **options: Any
    ) -> dict[str, Future]:
        """By name."""

        def create(new: NewPartitions) -> None:
            self.cluster.add_partitions(
                self._topic(new.topic).name, new.new_total_count, validate_only
            )

        return self._request_for_each(
            "CreatePartitions", {new.topic: partial(create, new) for new in new_partitions}, options
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

        def describe(resource: ConfigResource) -> dict[str, ConfigEntry]:
            if resource.restype == ResourceType.BROKER:
                return {
                    name: ConfigEntry(name, value, ConfigSource.STATIC_BROKER_CONFIG)
                    for name, value in BROKER_CONFIG.items()
                }
            overrides = self._topic(resource.name).overrides
            return {
                name: ConfigEntry(
                    name,
                    overrides.get(name, value),
                    (
                        ConfigSource.DYNAMIC_TOPIC_CONFIG
                        if name in overrides
                        else ConfigSource.DEFAULT_CONFIG
                    ),
                    is_default=name not in overrides,
                )
                for name, value in self.cluster.defaults.items()
            }

        return self._request_for_each(
            "DescribeConfigs",
            {resource: partial(describe, resource) for resource in resources},
            options,
        )

    def incremental_alter_configs(
        self, resources: Sequence[ConfigResource], **options: Any
    ) -> dict[ConfigResource, Future]:
        """Of topics."""

        def alter(resource: ConfigResource) -> None:
            self._topic(resource.name)
            changes = {
                entry.name: (
                    str(entry.value)
                    if entry.incremental_operation == AlterConfigOpType.SET
                    else None
                )
                for entry in resource.incremental_configs
            }
            merge_config(
                self.cluster.defaults,
                {name: value for name, value in changes.items() if value is not None},
            )
            self.cluster.alter_config(resource.name, **changes)

        return self._request_for_each(
            "IncrementalAlterConfigs",
            {resource: partial(alter, resource) for resource in resources},
            options,
        )

    # ---- records

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

    def describe_consumer_groups(
        self, group_ids: Sequence[str], **options: Any
    ) -> dict[str, Future]:
        """States and members. A group that does not exist is DEAD."""
        operations: Any = (
            [*GROUP_OPERATIONS] if options.get("include_authorized_operations") else None
        )

        def describe(name: str) -> ConsumerGroupDescription:
            group = self.cluster.groups.get(name)
            members = (
                [
                    MemberDescription(
                        member.id,
                        member.client_id,
                        "/127.0.0.1",
                        MemberAssignment(
                            [TopicPartition(*partition) for partition in member.assigned]
                        ),
                        member.instance_id,
                    )
                    for member in group.members.values()
                ]
                if group
                else []
            )
            state = ConsumerGroupState[group.state] if group else ConsumerGroupState.DEAD
            assignor = "roundrobin" if group and members and not group.is_consumer_protocol else ""
            return ConsumerGroupDescription(
                name, False, members, assignor, state, self._node(), operations
            )

        return self._request_for_each(
            "DescribeConsumerGroups", {name: partial(describe, name) for name in group_ids}, options
        )

    def list_consumer_group_offsets(
        self,
        request: Sequence[ConsumerGroupTopicPartitions],
        require_stable: bool = False,
        **options: Any,
    ) -> dict[str, Future]:
        """By group."""

        def fetch(group_request: ConsumerGroupTopicPartitions) -> ConsumerGroupTopicPartitions:
            keys = (
                None
                if group_request.topic_partitions is None
                else [
                    (partition.topic, partition.partition)
                    for partition in group_request.topic_partitions
                ]
            )
            group = self.cluster.find_group(group_request.group_id)
            answers = [
                create_topic_partition(
                    *key, offset if offset >= 0 else OFFSET_INVALID, metadata or None, code
                )
                for key, (offset, metadata, code) in group.fetch(keys, require_stable).items()
            ]
            return ConsumerGroupTopicPartitions(group_request.group_id, answers)

        return self._request_for_each(
            "OffsetFetch",
            {group_request.group_id: partial(fetch, group_request) for group_request in request},
            options,
        )

    def alter_consumer_group_offsets(
        self, request: Sequence[ConsumerGroupTopicPartitions], **options: Any
    ) -> dict[str, Future]:
        """Commit for a group that has no members."""

        def commit(group_request: ConsumerGroupTopicPartitions) -> ConsumerGroupTopicPartitions:
            offsets = {
                (partition.topic, partition.partition): (partition.offset, partition.metadata or "")
                for partition in group_request.topic_partitions or ()
            }
            try:
                codes = self.cluster.group(group_request.group_id).commit(offsets)
            except BrokerError as error:
                codes = dict.fromkeys(offsets, error.code)
            return ConsumerGroupTopicPartitions(
                group_request.group_id,
                [
                    create_topic_partition(*key, offset, metadata or None, codes[key])
                    for key, (offset, metadata) in offsets.items()
                ],
            )

        return self._request_for_each(
            "OffsetCommit",
            {group_request.group_id: partial(commit, group_request) for group_request in request},
            options,
        )

    def delete_consumer_groups(self, group_ids: Iterable[str], **options: Any) -> dict[str, Future]:
        """Groups without members, with their offsets."""

        def delete(name: str) -> None:
            group = self.cluster.groups.get(name)
            if group is None:
                raise BrokerError(KafkaError.GROUP_ID_NOT_FOUND)
            if group.members:
                raise BrokerError(KafkaError.NON_EMPTY_GROUP)
            self.cluster.delete_group(name)

        return self._request_for_each(
            "DeleteGroups", {name: partial(delete, name) for name in group_ids}, options
        )
