"""Reads the log of a simulated cluster directly: at once, and without a request. No simulated
process can do this.
"""

from __future__ import annotations

from typing import Any

from common import frontier as frontiers
from common.routes import TopicPartition
from tools.simulator.kafka.cluster import Cluster
from tools.simulator.kafka.errors import BrokerError
from tools.simulator.kafka.log_records import DATA, Record

COUNT_MAX = 1 << 60
Content = tuple[Any, ...]


def extract_content(record: Record) -> Content:
    """The part of a record that the copy must keep."""
    return record.key, record.value, tuple(record.headers or ()), record.timestamp_ms


def has_partition(cluster: Cluster, tp: TopicPartition) -> bool:
    """Whether the partition exists."""
    return cluster.find_log(*tp) is not None


def count_partitions(cluster: Cluster, topic: str) -> int:
    """The number of partitions; 0 when the topic does not exist."""
    found = cluster.topics.get(topic)
    return len(found.logs) if found else 0


def read_committed(
    cluster: Cluster, tp: TopicPartition, begin: int, count: int = COUNT_MAX, end: int | None = None
) -> tuple[list[tuple[int, Content]], int] | None:
    """The visible records from `begin` on and below `end`, and the next offset to read; None when
    `begin` is out of range.
    """
    log = cluster.find_log(*tp)
    if log is None:
        return None
    try:
        found, next_offset, _ = log.read(begin, count, committed=True)
    except BrokerError:
        return None
    if end is not None and next_offset > end:
        found, next_offset = [record for record in found if record.offset < end], max(begin, end)
    return [(record.offset, extract_content(record)) for record in found], next_offset


def list_data_offsets(cluster: Cluster, tp: TopicPartition) -> list[int]:
    """The offsets of all records, without markers."""
    log = cluster.find_log(*tp)
    return [record.offset for record in log.records if record.kind == DATA] if log else []


def load_frontier_offset(cluster: Cluster, group: str, tp: TopicPartition) -> int | None:
    """The offset of the frontier that a group has committed for an intermediate partition."""
    found = cluster.groups.get(group)
    commit = found.offsets.committed.get(tp) if found else None
    return frontiers.decode(commit[1]).source_offset if commit else None
