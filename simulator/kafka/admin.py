"""confluent-kafka's AdminClient: each question is on its way at once, and its future waits for the answer where it is asked for it.

Nothing is asked again by itself: a connection that breaks is an error, and ListOffsets that times out an answer without an offset (confluent-kafka 2.16).
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
from simulator.kafka.errors import BrokerError, RequestTimedOut, create_exception, create_topic_partition
from simulator.kafka.future import Future
from simulator.kafka.list_offsets import ListOffsetsAnswer, answer_list_offsets
from simulator.kafka.network import Network

ON_TOPIC = (AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE,
            AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)
ON_GROUP = (AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)
ON_CLUSTER = (AclOperation.CREATE, AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION, AclOperation.DESCRIBE_CONFIGS,
              AclOperation.ALTER_CONFIGS, AclOperation.IDEMPOTENT_WRITE)
TIMEOUT_S = 60.0
RENEWED_EVERY_S = 30.0
"""Of its own a client renewed its leader epochs after about so long (seen: tests/test_candidate_answers.py, a change of leaders)."""
Key = tuple[str, int]


class AdminClient(Client):
    """As far as reo uses it."""

    def __init__(self, network: Network, options: Mapping[str, Any]) -> None:
        super().__init__(network, options)
        self.leader_epochs: dict[Key, int] = {}
        """As the client has learned them: it does not ask again when it is told that they are old."""
        self.renewed_at = self.schedule.now

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Metadata; of the topic, also the leader epochs."""
        found = super().list_topics(topic, timeout)
        self.leader_epochs = {key: epoch for key, epoch in self.leader_epochs.items() if key[0] != topic}
        return found

    def _check_epoch(self, topic: str, partition: int) -> None:
        if self.schedule.now > self.renewed_at + RENEWED_EVERY_S:
            self.leader_epochs, self.renewed_at = {}, self.schedule.now
        now = self.cluster.log(topic, partition).leader_epoch
        if self.leader_epochs.setdefault((topic, partition), now) < now:
            raise BrokerError(KafkaError.FENCED_LEADER_EPOCH)

    def poll(self, timeout: float = -1) -> int:  # noqa: ARG002  (no caller waits here)
        """Call what waits to be called."""
        return self.tell()

    def _asked(self, api: str, execute: Callable[[], Any], more: Mapping[str, Any], instead: Any = None) -> Future:
        """One request; `instead` is the answer of one that times out, if it is not an error."""
        timeout_s = float(more.get("request_timeout", TIMEOUT_S))
        future = Future(self.schedule)

        def done(value: Any, failed: Exception | None) -> None:
            if failed is None or (instead is not None and isinstance(failed, RequestTimedOut)):
                future.set(value if failed is None else instead)
            elif isinstance(failed, BrokerError):
                future.fail(create_exception(failed.code, failed.reason))
            elif isinstance(failed, RequestTimedOut):
                self.note_lost(api)
                future.fail(create_exception(KafkaError._TIMED_OUT, "Failed while waiting for response from broker: Local: Timed out"))
            else:
                self.note_lost(api)
                future.fail(create_exception(KafkaError._TRANSPORT, f"{api} worker request failed: Local: Broker transport failure"))
        self.network.send(self.cluster, api, execute, timeout_s, done)
        return future

    def _each(self, api: str, executes: Mapping[Any, Callable[[], Any]], more: Mapping[str, Any], instead: Any = None) -> dict[Any, Future]:
        """One request, with an answer for each key."""
        futures = {key: Future(self.schedule) for key in executes}

        def execute() -> dict[Any, Any]:
            answers = {}
            for key, one in executes.items():
                try:
                    answers[key] = one()
                except BrokerError as error:
                    answers[key] = create_exception(error.code, error.reason)
            return answers

        whole = self._asked(api, execute, more, dict.fromkeys(executes, instead) if instead is not None else None)

        def settle() -> None:
            for key, future in futures.items():
                future.settle(whole, key)
        whole.then(settle)
        return futures

    # ---- the cluster and its topics

    def describe_cluster(self, **more: Any) -> Future:
        """Its id and nodes."""
        wants = more.get("include_authorized_operations")
        return self._asked("DescribeCluster", lambda: DescribeClusterResult(self._node(), [Node(number, self.cluster.name, 9092)
                           for number in range(1, self.cluster.brokers + 1)], self.cluster.cluster_id, [*ON_CLUSTER] if wants else None), more)

    def _node(self) -> Any:
        return Node(1, self.cluster.name, 9092)

    def describe_topics(self, topics: TopicCollection, **more: Any) -> dict[str, Future]:
        """By name."""
        operations: Any = [*ON_TOPIC] if more.get("include_authorized_operations") else None

        def described(name: str) -> TopicDescription:
            topic, node = self._topic(name), self._node()
            return TopicDescription(name, topic.id, name.startswith("__"), [TopicPartitionInfo(number, node, [node], [node])
                                    for number in range(len(topic.logs))], operations)
        return self._each("DescribeTopics", {name: partial(described, name) for name in topics.topic_names}, more)

    def _topic(self, name: str) -> Topic:
        if name not in self.cluster.topics:
            raise BrokerError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return self.cluster.topics[name]

    def create_topics(self, new_topics: Sequence[NewTopic], validate_only: bool = False, **more: Any) -> dict[str, Future]:
        """By name."""
        def create(new: NewTopic) -> None:
            if new.topic in self.cluster.topics:
                raise BrokerError(KafkaError.TOPIC_ALREADY_EXISTS, f"Topic '{new.topic}' already exists.")
            if new.replication_factor > self.cluster.brokers:
                raise BrokerError(KafkaError.INVALID_REPLICATION_FACTOR, f"Unable to replicate the partition {new.replication_factor} time(s): The target "
                              f"replication factor of {new.replication_factor} cannot be reached because only {self.cluster.brokers} broker(s) are registered.")
            config = {name: str(value) for name, value in (new.config or {}).items()}
            merge_config(self.cluster.defaults, config)
            if not validate_only:
                self.cluster.create_topic(new.topic, max(1, new.num_partitions), config)
        return self._each("CreateTopics", {new.topic: partial(create, new) for new in new_topics}, more)

    def create_partitions(self, new_partitions: Sequence[NewPartitions], validate_only: bool = False, **more: Any) -> dict[str, Future]:
        """By name."""
        def create(new: NewPartitions) -> None:
            self.cluster.add_partitions(self._topic(new.topic).name, new.new_total_count, validate_only)
        return self._each("CreatePartitions", {new.topic: partial(create, new) for new in new_partitions}, more)

    def delete_topics(self, topics: Sequence[str], **more: Any) -> dict[str, Future]:
        """By name."""
        return self._each("DeleteTopics", {name: partial(self.cluster.delete_topic, name) for name in topics}, more)

    def describe_configs(self, resources: Sequence[ConfigResource], **more: Any) -> dict[ConfigResource, Future]:
        """Names and entries."""
        def described(resource: ConfigResource) -> dict[str, ConfigEntry]:
            if resource.restype == ResourceType.BROKER:
                return {name: ConfigEntry(name, value, ConfigSource.STATIC_BROKER_CONFIG) for name, value in BROKER_CONFIG.items()}
            overrides = self._topic(resource.name).overrides
            return {name: ConfigEntry(name, overrides.get(name, value),
                                      (ConfigSource.DYNAMIC_TOPIC_CONFIG if name in overrides else ConfigSource.DEFAULT_CONFIG),
                                      is_default=name not in overrides) for name, value in self.cluster.defaults.items()}
        return self._each("DescribeConfigs", {resource: partial(described, resource) for resource in resources}, more)

    def incremental_alter_configs(self, resources: Sequence[ConfigResource], **more: Any) -> dict[ConfigResource, Future]:
        """Of topics."""
        def alter(resource: ConfigResource) -> None:
            self._topic(resource.name)
            changes = {entry.name: str(entry.value) if entry.incremental_operation == AlterConfigOpType.SET else None
                       for entry in resource.incremental_configs}
            merge_config(self.cluster.defaults, {name: value for name, value in changes.items() if value is not None})
            self.cluster.alter_config(resource.name, **changes)
        return self._each("IncrementalAlterConfigs", {resource: partial(alter, resource) for resource in resources}, more)

    # ---- records

    def delete_records(self, topic_partition_offsets: Sequence[TopicPartition], **more: Any) -> dict[TopicPartition, Future]:
        """What is below these offsets."""
        def any_known() -> bool:
            return any(self.cluster.find_log(one.topic, one.partition) for one in topic_partition_offsets)

        def delete(one: TopicPartition) -> DeletedRecords:
            self._check_leader(one.topic, one.partition, any_known)
            return DeletedRecords(self.cluster.delete_records(one.topic, one.partition, one.offset))
        return self._each("DeleteRecords", {one: partial(delete, one) for one in topic_partition_offsets}, more)

    def _check_leader(self, topic: str, partition: int, any_known: Callable[[], bool]) -> None:
        """The client looks for the partitions' leaders first."""
        if self.cluster.find_log(topic, partition) is None:
            if not any_known():
                raise BrokerError(KafkaError._NOENT)
            raise BrokerError(KafkaError._UNKNOWN_PARTITION if topic in self.cluster.topics else KafkaError.UNKNOWN_TOPIC_OR_PART)

    def list_offsets(self, topic_partition_offsets: Mapping[TopicPartition, OffsetSpec], isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
                     **more: Any) -> dict[TopicPartition, Future]:
        """Of each partition, by its own question."""
        committed = isolation_level == IsolationLevel.READ_COMMITTED
        if not topic_partition_offsets:
            return {}

        def any_known() -> bool:
            return any(self.cluster.find_log(one.topic, one.partition) for one in topic_partition_offsets)

        def result(topic: str, partition: int, spec: int) -> ListOffsetsResultInfo:
            self._check_leader(topic, partition, any_known)
            self._check_epoch(topic, partition)
            answer: ListOffsetsAnswer = answer_list_offsets(self.cluster, topic, partition, spec, committed)
            if answer.code:
                raise BrokerError(answer.code)
            return ListOffsetsResultInfo(answer.offset, answer.timestamp_ms, answer.leader_epoch)
        return self._each("ListOffsets", {one: partial(result, one.topic, one.partition, spec._value)
                                          for one, spec in topic_partition_offsets.items()}, more, ListOffsetsResultInfo(OFFSET_INVALID, -1, -1))

    # ---- groups

    def describe_consumer_groups(self, group_ids: Sequence[str], **more: Any) -> dict[str, Future]:
        """Their states and members; a group that is not there is dead."""
        operations: Any = [*ON_GROUP] if more.get("include_authorized_operations") else None

        def described(name: str) -> ConsumerGroupDescription:
            group = self.cluster.groups.get(name)
            members = [MemberDescription(member.id, member.client_id, "/127.0.0.1", MemberAssignment([TopicPartition(*one) for one in member.assigned]),
                                         member.instance_id) for member in group.members.values()] if group else []
            state = ConsumerGroupState[group.state] if group else ConsumerGroupState.DEAD
            assignor = "roundrobin" if group and members and not group.is_consumer_protocol else ""
            return ConsumerGroupDescription(name, False, members, assignor, state, self._node(), operations)
        return self._each("DescribeConsumerGroups", {name: partial(described, name) for name in group_ids}, more)

    def list_consumer_group_offsets(self, request: Sequence[ConsumerGroupTopicPartitions], require_stable: bool = False, **more: Any) -> dict[str, Future]:
        """By group."""
        def fetched(asked: ConsumerGroupTopicPartitions) -> ConsumerGroupTopicPartitions:
            keys = None if asked.topic_partitions is None else [(one.topic, one.partition) for one in asked.topic_partitions]
            group = self.cluster.find_group(asked.group_id)
            answers = [create_topic_partition(*key, offset if offset >= 0 else OFFSET_INVALID, metadata or None, code)
                       for key, (offset, metadata, code) in group.fetch(keys, require_stable).items()]
            return ConsumerGroupTopicPartitions(asked.group_id, answers)
        return self._each("OffsetFetch", {asked.group_id: partial(fetched, asked) for asked in request}, more)

    def alter_consumer_group_offsets(self, request: Sequence[ConsumerGroupTopicPartitions], **more: Any) -> dict[str, Future]:
        """Commit for a group that has no members."""
        def commit(asked: ConsumerGroupTopicPartitions) -> ConsumerGroupTopicPartitions:
            offsets = {(one.topic, one.partition): (one.offset, one.metadata or "") for one in asked.topic_partitions or ()}
            try:
                codes = self.cluster.group(asked.group_id).commit(offsets)
            except BrokerError as error:
                codes = dict.fromkeys(offsets, error.code)
            return ConsumerGroupTopicPartitions(asked.group_id, [create_topic_partition(*key, offset, metadata or None, codes[key])
                                                                 for key, (offset, metadata) in offsets.items()])
        return self._each("OffsetCommit", {asked.group_id: partial(commit, asked) for asked in request}, more)

    def delete_consumer_groups(self, group_ids: Iterable[str], **more: Any) -> dict[str, Future]:
        """Groups without members, with their offsets."""
        def delete(name: str) -> None:
            group = self.cluster.groups.get(name)
            if group is None:
                raise BrokerError(KafkaError.GROUP_ID_NOT_FOUND)
            if group.members:
                raise BrokerError(KafkaError.NON_EMPTY_GROUP)
            self.cluster.delete_group(name)
        return self._each("DeleteGroups", {name: partial(delete, name) for name in group_ids}, more)
