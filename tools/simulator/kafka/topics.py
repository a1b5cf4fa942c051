"""The topics of a simulated cluster, and their configuration: what brokers of 4.3 and 3.9 answer
for a topic on which nothing is set.
"""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError, Uuid

from tools.simulator.kafka.errors import BrokerError
from tools.simulator.kafka.log import Log

LONG_MAX = "9223372036854775807"
DEFAULTS: dict[str, str] = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": LONG_MAX,
    "flush.ms": LONG_MAX,
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": LONG_MAX,
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": LONG_MAX,
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "-1",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


DEFAULTS_3_9 = DEFAULTS | {
    "message.timestamp.after.max.ms": LONG_MAX,
    "message.timestamp.difference.max.ms": LONG_MAX,
    "message.downconversion.enable": "true",
    "message.format.version": "3.0-IV1",
}
"""The default topic settings of Kafka 3.9."""
BROKER_CONFIG = {
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.max.timeout.ms": "900000",
    "group.min.session.timeout.ms": "6000",
    "group.max.session.timeout.ms": "1800000",
    "offsets.retention.minutes": "10080",
    "offset.metadata.max.bytes": "4096",
    "min.insync.replicas": "1",
    "transactional.id.expiration.ms": "604800000",
    "message.max.bytes": "1048588",
}
"""The broker settings that the service reads."""


def merge_config(defaults: Mapping[str, str], overrides: Mapping[str, str]) -> dict[str, str]:
    """The complete configuration of a topic. BrokerError for a name that brokers do not know."""
    for name in overrides:
        if name not in defaults:
            raise BrokerError(KafkaError.INVALID_CONFIG, f"Unknown topic config name: {name}")
    return {**defaults, **overrides}


class Topic:
    """A topic with its id. A recreated topic is another object."""

    __slots__ = ("config", "id", "logs", "name", "overrides")

    def __init__(
        self,
        name: str,
        topic_id: Uuid,
        partitions: int,
        overrides: Mapping[str, str],
        config: dict[str, str],
    ) -> None:
        self.name = name
        self.id = topic_id
        self.overrides = dict(overrides)
        """The topic's own settings (DYNAMIC_TOPIC_CONFIG)."""
        self.config = config
        self.logs = [Log() for _ in range(partitions)]
