"""Which configurations of a topic its copy takes over.

A copy takes over the configurations that are set on the source topic itself and known to the
destination's brokers. What is not set on a topic is decided by its cluster, on either side. There
are two exceptions. The configurations in `NOT_TAKEN_OVER` are not taken over, each for its reason.
And the limit on a batch, `max.message.bytes`, is taken over even when the source topic has it from
its broker: otherwise the destination would refuse records that the source accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka.admin import ConfigSource

ENVELOPE_EXTRA_BYTES = 4096
"""By how much the limit of an intermediate topic is above the source's: room for an envelope with
the source's largest record, as that is stored without compression. It needs less than 100 bytes:
the head (54), a longer varint for the source offset (up to 9), and the fields of the intermediate
record around its value (up to 15). A batch with one record is framed alike on both sides. A record
that the source's producer has compressed can need any number more, unless it is compressed again
(`producer.compression_type`).
"""
LIMIT = "max.message.bytes"
TIMESTAMPS = {"message.timestamp.type": "CreateTime"}
"""Of every destination topic: its timestamps are the source's."""
_BROKERS = "it names brokers of the source cluster"
_TIERED = "tiered storage is a matter of the cluster"
_OLD = (
    "it is measured against the clock when a record is copied: what was young at the source would"
    " be refused"
)
_VERSION = "it belongs to the version of the broker"
NOT_TAKEN_OVER = {
    "leader.replication.throttled.replicas": _BROKERS,
    "follower.replication.throttled.replicas": _BROKERS,
    "min.insync.replicas": (
        "it belongs to the replication factor, which is topics.replication_factor"
    ),
    "unclean.leader.election.enable": (
        "an unclean election at the destination would lose committed records"
    ),
    "message.timestamp.type": "the copy has the source's timestamps: CreateTime",
    "message.timestamp.before.max.ms": _OLD,
    "message.timestamp.difference.max.ms": _OLD,
    "remote.storage.enable": _TIERED,
    "local.retention.ms": _TIERED,
    "local.retention.bytes": _TIERED,
    "remote.log.copy.disable": _TIERED,
    "remote.log.delete.on.disable": _TIERED,
    "message.format.version": _VERSION,
    "message.downconversion.enable": _VERSION,
}
SYNCABLE = (
    "cleanup.policy",
    "compression.type",
    "delete.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.ms",
)
"""What `topics.sync` can name: what means the same on every cluster, and stops no copy."""
Entries = Mapping[str, Any]
"""A topic's configuration as `topics.describe_config` reads it: name → ConfigEntry."""


def list_own_configs(entries: Entries) -> dict[str, str]:
    """What is set on the topic itself."""
    return {
        name: str(entry.value)
        for name, entry in entries.items()
        if getattr(entry.source, "value", entry.source) == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    }


def get_max_message_bytes(entries: Entries) -> int:
    """The largest batch of records, in bytes as the broker stores it."""
    return int(entries[LIMIT].value)


def is_compacted(entries: Entries) -> bool:
    """Whether compaction can remove records from the middle of the topic."""
    return "compact" in str(entries["cleanup.policy"].value)


def list_not_copied(source: Entries, known: Entries) -> dict[str, str]:
    """What is set at the source and not copied: name → reason. `known`: to the destination."""
    return {
        name: NOT_TAKEN_OVER.get(name, "the destination's brokers do not know it")
        for name in list_own_configs(source)
        if name in NOT_TAKEN_OVER or name not in known
    }


def build_intermediate_config(source: Entries) -> dict[str, str]:
    """What an intermediate topic is made with: nothing expires unread, since stage two purges what
    it has committed. One replica in sync is enough: what is lost is read again from the source.
    """
    return _build_kept_config(source) | {
        "message.timestamp.type": "LogAppendTime",
        "min.insync.replicas": "1",
    }


def build_parked_config(source: Entries) -> dict[str, str]:
    """What a topic for parked records is made with: they wait for a person."""
    return _build_kept_config(source) | TIMESTAMPS


def _build_kept_config(source: Entries) -> dict[str, str]:
    """Nothing expires, and a record of the source fits with what reo adds to it."""
    return {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        LIMIT: str(get_max_message_bytes(source) + ENVELOPE_EXTRA_BYTES),
    }


def build_destination_config(source: Entries, known: Entries) -> dict[str, str]:
    """What a destination topic is made with."""
    left_out = list_not_copied(source, known)
    return (
        {name: value for name, value in list_own_configs(source).items() if name not in left_out}
        | {LIMIT: str(get_max_message_bytes(source))}
        | TIMESTAMPS
    )
