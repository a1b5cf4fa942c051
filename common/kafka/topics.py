"""Describes topics: their ids, partitions and configurations, as their clusters report them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from common.envelope import compute_identity
from common.errors import ClusterUnreachable, SettingsInvalid, TopicMissing
from common.kafka import copied_configs
from common.kafka.cluster_metadata import read_brokers, read_cluster_id
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S, ask_cluster, ask_with_retries
from common.routes import Route, TopicPartition
from common.settings import Settings, destination_kind
from common.settings.clusters import Cluster

NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as its cluster describes it. A recreated topic has another `identity`."""

    name: str
    topic_id: str
    partitions: int
    """Of a source topic, those of its route."""
    cluster_id: str
    other_partitions: int = field(default=0, compare=False)
    """Of a source topic, those that other services copy."""

    @property
    def total_partitions(self) -> int:
        """Of a source topic, also those of other services."""
        return self.partitions + self.other_partitions

    @property
    def identity(self) -> str:
        """See `common.envelope.compute_identity`."""
        return compute_identity(self.cluster_id, self.name, self.topic_id)


def describe(
    client: AdminClient, names: Collection[str], timeout_s: float = REQUEST_TIMEOUT_S
) -> dict[str, Topic]:
    """The existing topics by name; KafkaException when the cluster does not answer."""
    if not names:
        return {}
    cluster_id = read_cluster_id(client, timeout_s, min(names))
    described = {}
    futures = client.describe_topics(TopicCollection(list(names)), request_timeout=timeout_s)
    for name, future in futures.items():
        try:
            topic = future.result()
        except KafkaException as failed:
            if failed.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
        else:
            topic_id = str(topic.topic_id)
            described[name] = Topic(
                name, "" if topic_id == NO_TOPIC_ID else topic_id, len(topic.partitions), cluster_id
            )
    return described


def get_cluster_id(
    cluster: Cluster, client: AdminClient, timeout_s: float = REQUEST_TIMEOUT_S
) -> str:
    """The cluster id."""
    return ask_cluster(cluster, client, timeout_s, partial(read_cluster_id, client))


def count_brokers(cluster: Cluster, client: AdminClient, timeout_s: float) -> int:
    """How many brokers the cluster has now."""
    return len(ask_cluster(cluster, client, timeout_s, partial(read_brokers, client)).brokers)


def look_up(
    cluster: Cluster,
    client: AdminClient,
    names: Collection[str],
    timeout_s: float = REQUEST_TIMEOUT_S,
) -> dict[str, Topic]:
    """The existing topics by name; retries until the cluster answers, at most about `timeout_s`:
    then ClusterUnreachable or AccessRefused.
    """
    return ask_cluster(cluster, client, timeout_s, partial(describe, client, names))


def list_names(cluster: Cluster, client: AdminClient, timeout_s: float) -> Collection[str]:
    """All topics of a cluster that the principal may describe."""
    return ask_cluster(
        cluster, client, timeout_s, lambda request_s: client.list_topics(timeout=request_s).topics
    )


def list_written_topics(settings: Settings, copied: Collection[Route]) -> set[str]:
    """The names of every intermediate topic, and of every destination topic, if there are any."""
    names = {route.intermediate_topic for route in copied}
    if not destination_kind.is_outside_kafka(settings):
        names |= {route.destination_topic for route in copied}
    return names


def list_parked_topics(settings: Settings, copied: Mapping[Route, Topic]) -> dict[str, Topic]:
    """The topics for parked records, each with a source topic; SettingsInvalid on a clash."""
    parked = {
        route.parked_topic: source
        for route, source in copied.items()
        if settings.filter.on_error == "park"
    }
    for name in list_written_topics(settings, copied) & parked.keys():
        raise SettingsInvalid(
            f"records are to be parked on {name}, which is a destination or an intermediate topic:"
            " rename one"
        )
    return parked


def describe_config(
    client: AdminClient, cluster: Cluster, name: str, timeout_s: float = REQUEST_TIMEOUT_S
) -> dict[str, Any]:
    """A topic's configuration. Retries while a broker does not know a new topic yet."""
    resource = ConfigResource(ResourceType.TOPIC, name)

    def ask() -> dict[str, Any]:
        answers = client.describe_configs(
            [resource], request_timeout=min(timeout_s, REQUEST_TIMEOUT_S)
        )
        return answers[resource].result()  # type: ignore[no-any-return]

    doing = f"reading the configuration of topic {name} of the {cluster.name} cluster"
    return ask_with_retries(doing, timeout_s, ask, (ClusterUnreachable, TopicMissing))


def get_message_bytes_max(client: AdminClient, cluster: Cluster, name: str) -> int:
    """The topic's max.message.bytes: the limit on a batch of records as the broker stores it."""
    return copied_configs.get_max_message_bytes(describe_config(client, cluster, name))


def is_compacted(client: AdminClient, cluster: Cluster, name: str) -> bool:
    """Whether compaction can remove records from the middle of the topic."""
    return copied_configs.is_compacted(describe_config(client, cluster, name))


def has_partitions(described: Mapping[str, Topic], partitions: Iterable[TopicPartition]) -> bool:
    """Whether these topics have all these partitions."""
    return all(
        tp.topic in described and tp.partition < described[tp.topic].partitions for tp in partitions
    )
