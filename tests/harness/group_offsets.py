"""What consumer groups have committed, and `reo offsets translate` as an operator gives it."""

from __future__ import annotations

import subprocess

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicPartition,
)

from common.kafka.consumer_group import list_group_offsets
from tests.harness.admin_requests import COORDINATOR_STARTS
from tests.harness.commands import reo
from tests.harness.kafka import Cluster, Clusters, until
from tests.harness.transactional_copy import PARTITIONS


def commit(
    cluster: Cluster, topic: str, group: str, offsets: dict[int, int], metadata: str = ""
) -> None:
    """What a consumer of the group commits; repeated while the group's coordinator starts."""
    topic_partitions = [
        TopicPartition(topic, partition, offset, metadata) for partition, offset in offsets.items()
    ]

    def try_to_commit() -> bool:
        asked = ConsumerGroupTopicPartitions(group, topic_partitions)
        try:
            answer = cluster.admin.alter_consumer_group_offsets([asked])[group].result()
            errors = [partition.error for partition in answer.topic_partitions if partition.error]
        except KafkaException as failed:
            errors = [failed.args[0]]
        assert {error.code() for error in errors} <= COORDINATOR_STARTS, errors
        return not errors

    until(try_to_commit, f"group {group} has committed")


def committed(cluster: Cluster, topic: str, group: str) -> dict[int, int]:
    """What the group has committed."""
    asked = ConsumerGroupTopicPartitions(
        group, [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    )
    answers = list_group_offsets(cluster.admin, asked, require_stable=False)
    return {answer.partition: answer.offset for answer in answers if answer.offset >= 0}


def read_metadata(cluster: Cluster, topic: str, group: str) -> dict[int, str]:
    """The metadata of the group's commits."""
    asked = ConsumerGroupTopicPartitions(
        group, [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    )
    answers = list_group_offsets(cluster.admin, asked, require_stable=False)
    return {answer.partition: answer.metadata for answer in answers if answer.offset >= 0}


def translate(
    clusters: Clusters, topic: str, group: str, *arguments: str, **more: str
) -> subprocess.CompletedProcess[str]:
    """The command as an operator gives it."""
    return reo(
        clusters,
        topic,
        *("offsets", "translate", "--group", group),
        *arguments,
        exit_code=None,
        **more,
    )
