"""The source topics of a pattern while one of them is deleted, on a real broker."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from confluent_kafka.admin import AdminClient

from common.errors import TopicMissing
from common.kafka import source_topics, topics
from common.kafka.clients import create_admin_client
from common.settings import load
from common.settings.clusters import Cluster
from tests.harness.kafka import Clusters
from tests.harness.merged_topics import build_topics_environment

look_up = topics.look_up


@pytest.fixture
def deleted_topic(clusters: Clusters, topic: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A topic that is deleted after the brokers have listed it, and before they describe it."""
    name = clusters.source.create(f"{topic}-deleted", 1)

    def delete_and_look_up(
        cluster: Cluster, client: AdminClient, names: Iterable[str], timeout_s: float
    ) -> dict[str, topics.Topic]:
        if clusters.source.partitions(name):
            clusters.source.delete(name)
        return look_up(cluster, client, names, timeout_s)

    monkeypatch.setattr(topics, "look_up", delete_and_look_up)
    return name


def test_a_topic_of_a_pattern_may_vanish_between_two_requests(
    clusters: Clusters, topic: str, deleted_topic: str
) -> None:
    """It is no topic that the settings name: the others are described."""
    clusters.source.create(f"{topic}-kept", 2)
    settings = load(build_topics_environment(clusters, topic, f"^{topic}-.*"))
    admin = create_admin_client(settings.source_cluster, settings)
    described = source_topics.describe_sources(settings, admin)
    assert not clusters.source.partitions(deleted_topic)
    assert [source.name for source in described.values()] == [f"{topic}-kept"]


def test_a_topic_that_the_settings_name_is_missing(
    clusters: Clusters, topic: str, deleted_topic: str
) -> None:
    """At once, with its name."""
    settings = load(build_topics_environment(clusters, topic, deleted_topic))
    admin = create_admin_client(settings.source_cluster, settings)
    with pytest.raises(TopicMissing, match=f"the source topic {deleted_topic} does not exist"):
        source_topics.describe_sources(settings, admin)
