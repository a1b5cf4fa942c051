"""A cluster's id and its brokers.

`AdminClient.describe_cluster` is not called anywhere: librdkafka (2.16) ends the process, with a
failed assertion in `rd_kafka_admin_response_parse`, when the answer has no brokers. A cluster in
KRaft mode answers so while none of its brokers is registered, as after a pause of the only broker.
"""

from __future__ import annotations

from typing import Protocol

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ClusterMetadata

OFFSETS_TOPIC = "__consumer_offsets"
"""Kafka's topic for the groups' offsets; each cluster has it, and answers for it."""


class MetadataClient(Protocol):
    """What consumers, producers and admin clients have in common."""

    def list_topics(self, topic: str, timeout: float) -> ClusterMetadata:
        """A Metadata request."""


def read_metadata(
    client: MetadataClient, timeout_s: float, topic: str = OFFSETS_TOPIC
) -> ClusterMetadata:
    """The metadata of a cluster and of one topic, which may be missing: its entry has the error.
    KafkaException when no broker answers.
    """
    return client.list_topics(topic, timeout_s)


def read_cluster_id(client: MetadataClient, timeout_s: float, topic: str = OFFSETS_TOPIC) -> str:
    """The cluster's id; KafkaException when no broker answers."""
    return str(read_metadata(client, timeout_s, topic).cluster_id)


def read_brokers(client: MetadataClient, timeout_s: float) -> ClusterMetadata:
    """The metadata of a cluster, with a broker at least; KafkaException when it has none now."""
    metadata = read_metadata(client, timeout_s)
    if not metadata.brokers:
        raise KafkaException(
            KafkaError(KafkaError.BROKER_NOT_AVAILABLE, "no broker is registered with it now")
        )
    return metadata
