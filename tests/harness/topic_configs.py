"""What is set on topics themselves, changes of it, and `reo topics` as an operator gives it."""

from __future__ import annotations

import subprocess

from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from tests.harness.commands import LONG_COMMAND_S, reo
from tests.harness.kafka import Cluster, Clusters, until


def read_own_configs(cluster: Cluster, topic: str) -> dict[str, str]:
    """What is set on the topic itself."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = cluster.admin.describe_configs([resource])[resource].result()
    return {
        name: entry.value
        for name, entry in entries.items()
        if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    }


def change(cluster: Cluster, topic: str, **config: str | None) -> None:
    """Set configurations of a topic, or take them off."""
    entries = [
        ConfigEntry(
            name.replace("_", "."),
            value,
            incremental_operation=(
                AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
            ),
        )
        for name, value in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    cluster.admin.incremental_alter_configs([resource])[resource].result()
    until(
        lambda: all(
            read_own_configs(cluster, topic).get(entry.name) == entry.value for entry in entries
        ),
        "the broker has the configuration",
    )


def reo_topics(
    clusters: Clusters, topic: str, *arguments: str, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run the command as an operator does."""
    return reo(
        clusters, topic, "topics", *arguments, exit_code=None, timeout_s=LONG_COMMAND_S, **more
    )
