"""The requests of a simulated AdminClient about topics and their settings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, TopicCollection, TopicPartitionInfo
from confluent_kafka.admin import (
    AclOperation,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
    TopicDescription,
)

from tools.simulator.kafka.admin_requests import AdminRequests
from tools.simulator.kafka.cluster_topics import Topic
from tools.simulator.kafka.errors import BrokerError
from tools.simulator.kafka.future import Future
from tools.simulator.kafka.topic_configs import BROKER_CONFIG, merge_config

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


class TopicAdmin(AdminRequests):
    """The part of an AdminClient that manages topics."""

    def describe_topics(self, topics: TopicCollection, **options: Any) -> dict[str, Future]:
        """By name."""
        operations: Any = (
            [*TOPIC_OPERATIONS] if options.get("include_authorized_operations") else None
        )

        def describe(name: str) -> TopicDescription:
            topic, node = self._topic(name), self.node()
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

        return self.request_for_each(
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

        return self.request_for_each(
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

        return self.request_for_each(
            "CreatePartitions", {new.topic: partial(create, new) for new in new_partitions}, options
        )

    def delete_topics(self, topics: Sequence[str], **options: Any) -> dict[str, Future]:
        """By name."""
        return self.request_for_each(
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

        return self.request_for_each(
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

        return self.request_for_each(
            "IncrementalAlterConfigs",
            {resource: partial(alter, resource) for resource in resources},
            options,
        )
