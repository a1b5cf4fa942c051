"""What brokers do with the requests of an AdminClient about topics, their settings, and groups."""

from __future__ import annotations

from typing import Any

from confluent_kafka import (
    OFFSET_INVALID,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    Node,
    TopicPartition,
    TopicPartitionInfo,
)
from confluent_kafka.admin import (
    AclOperation,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConsumerGroupDescription,
    MemberAssignment,
    MemberDescription,
    NewTopic,
    ResourceType,
    TopicDescription,
)

from tools.simulator.kafka.cluster import Cluster
from tools.simulator.kafka.errors import BrokerError, create_topic_partition
from tools.simulator.kafka.topics import BROKER_CONFIG, merge_config

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


def describe_topic(cluster: Cluster, name: str, has_operations: bool) -> TopicDescription:
    """DescribeTopicPartitions. There is one broker."""
    topic, node = cluster.topic(name), Node(1, cluster.name, 9092)
    operations: Any = [*TOPIC_OPERATIONS] if has_operations else None
    return TopicDescription(
        name,
        topic.id,
        name.startswith("__"),
        [TopicPartitionInfo(number, node, [node], [node]) for number in range(len(topic.logs))],
        operations,
    )


def create_topic(cluster: Cluster, new: NewTopic, validate_only: bool) -> None:
    """CreateTopics."""
    if new.topic in cluster.topics:
        raise BrokerError(KafkaError.TOPIC_ALREADY_EXISTS, f"Topic '{new.topic}' already exists.")
    if new.replication_factor > cluster.brokers:
        raise BrokerError(
            KafkaError.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {new.replication_factor} time(s): The"
            f" target replication factor of {new.replication_factor} cannot be reached"
            f" because only {cluster.brokers} broker(s) are registered.",
        )
    config = {name: str(value) for name, value in (new.config or {}).items()}
    merge_config(cluster.defaults, config)
    if not validate_only:
        cluster.create_topic(new.topic, max(1, new.num_partitions), config)


def describe_config(cluster: Cluster, resource: ConfigResource) -> dict[str, ConfigEntry]:
    """DescribeConfigs."""
    if resource.restype == ResourceType.BROKER:
        return {
            name: ConfigEntry(name, value, ConfigSource.STATIC_BROKER_CONFIG)
            for name, value in BROKER_CONFIG.items()
        }
    overrides = cluster.topic(resource.name).overrides
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
        for name, value in cluster.defaults.items()
    }


def alter_config(cluster: Cluster, resource: ConfigResource) -> None:
    """IncrementalAlterConfigs of a topic."""
    cluster.topic(resource.name)
    changes = {
        entry.name: (
            str(entry.value) if entry.incremental_operation == AlterConfigOpType.SET else None
        )
        for entry in resource.incremental_configs
    }
    merge_config(
        cluster.defaults, {name: value for name, value in changes.items() if value is not None}
    )
    cluster.alter_config(resource.name, **changes)


def describe_group(cluster: Cluster, name: str, has_operations: bool) -> ConsumerGroupDescription:
    """DescribeGroups. A group that does not exist is DEAD."""
    group = cluster.groups.get(name)
    members = [
        MemberDescription(
            member.id,
            member.client_id,
            "/127.0.0.1",
            MemberAssignment([TopicPartition(*partition) for partition in member.assigned]),
            member.instance_id,
        )
        for member in (group.members.values() if group else ())
    ]
    state = ConsumerGroupState[group.state] if group else ConsumerGroupState.DEAD
    assignor = "roundrobin" if members else ""
    operations: Any = [*GROUP_OPERATIONS] if has_operations else None
    node = Node(1, cluster.name, 9092)
    return ConsumerGroupDescription(name, False, members, assignor, state, node, operations)


def fetch_offsets(
    cluster: Cluster, request: ConsumerGroupTopicPartitions, require_stable: bool
) -> ConsumerGroupTopicPartitions:
    """OffsetFetch of a group, of all its partitions or of those that are named."""
    keys = (
        None
        if request.topic_partitions is None
        else [(partition.topic, partition.partition) for partition in request.topic_partitions]
    )
    answers = cluster.find_group(request.group_id).offsets.fetch(keys, require_stable)
    return ConsumerGroupTopicPartitions(
        request.group_id,
        [
            create_topic_partition(
                *key, offset if offset >= 0 else OFFSET_INVALID, metadata or None, code
            )
            for key, (offset, metadata, code) in answers.items()
        ],
    )


def alter_offsets(
    cluster: Cluster, request: ConsumerGroupTopicPartitions
) -> ConsumerGroupTopicPartitions:
    """OffsetCommit for a group that has no members."""
    offsets = {
        (partition.topic, partition.partition): (partition.offset, partition.metadata or "")
        for partition in request.topic_partitions or ()
    }
    try:
        codes = cluster.group(request.group_id).commit(offsets)
    except BrokerError as error:
        codes = dict.fromkeys(offsets, error.code)
    return ConsumerGroupTopicPartitions(
        request.group_id,
        [
            create_topic_partition(*key, offset, metadata or None, codes[key])
            for key, (offset, metadata) in offsets.items()
        ],
    )


def delete_group(cluster: Cluster, name: str) -> None:
    """DeleteGroups: a group without members, with its offsets."""
    group = cluster.groups.get(name)
    if group is None:
        raise BrokerError(KafkaError.GROUP_ID_NOT_FOUND)
    if group.members:
        raise BrokerError(KafkaError.NON_EMPTY_GROUP)
    cluster.delete_group(name)
