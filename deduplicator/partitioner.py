"""Applies mappings (`common.partition_mapping`): which destination partition each record of an
intermediate partition goes to.

Consecutive records for one destination partition are a group. Groups are written in the order of
the records, so the records of each destination partition keep their order, whatever chose the
partition. The client partitions by key, with the Java client's `partitioner`
(`clients.create_transactional_producer`): it does so in C, after it has accepted the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from common import partition_mapping
from common.errors import SettingsInvalid
from common.routes import SAME, Route, TopicPartition
from deduplicator.unwrap import Record, build_source_record
from deduplicator.user_call_timeout import CallLimit

BY_CLIENT = -1
"""RD_KAFKA_PARTITION_UA: the client chooses."""
Partitioner = Callable[[Sequence[Record]], Iterable[tuple[TopicPartition, Sequence[Record]]]]


def build_partitioner(
    route: Route, partition: int, partitions: int, limit: CallLimit
) -> Partitioner:
    """One intermediate partition's partitioner, for a topic with so many partitions."""
    topic, fixed = route.destination_topic, partition_mapping.parse_fixed_partition(route.mapping)
    if route.mapping == SAME or fixed is not None:
        tp = TopicPartition(topic, partition if fixed is None else fixed)
        return lambda records: [(tp, records)]
    choose_partition = (
        _partition_by_key(partition % partitions)
        if route.mapping == partition_mapping.KEY
        else _partition_by_function(route, partition, partitions, limit)
    )

    def group_by_partition(
        records: Sequence[Record],
    ) -> list[tuple[TopicPartition, Sequence[Record]]]:
        with limit:
            return [
                (TopicPartition(topic, chosen), list(group))
                for chosen, group in groupby(records, choose_partition)
            ]

    return group_by_partition


def _partition_by_key(without_key: int) -> Callable[[Record], int]:
    return lambda record: without_key if record[0] is None else BY_CLIENT


def _partition_by_function(
    route: Route, partition: int, partitions: int, limit: CallLimit
) -> Callable[[Record], int]:
    function = partition_mapping.load_function(route.mapping)

    source = route.get_source(partition)

    def choose_partition(record: Record) -> int:
        source_record = build_source_record(source, record)
        try:
            chosen = limit.call(lambda one: function(one, partitions), source_record)
        except Exception as failed:
            raise _build_refusal(
                route, partition, record, f"{type(failed).__name__}: {failed}"
            ) from failed
        if type(chosen) is not int or not 0 <= chosen < partitions:
            raise _build_refusal(
                route,
                partition,
                record,
                f"it returned {chosen!r}, the destination topic has the partitions 0 to"
                f" {partitions - 1}",
            )
        return chosen

    return choose_partition


def _build_refusal(route: Route, partition: int, record: Record, reason: str) -> SettingsInvalid:
    return SettingsInvalid(
        f"the mapping of {route} cannot place a record of {route.get_source(partition)} (key"
        f" {record[0]!r:.80}, timestamp {record[3]}): {reason}"
    )
