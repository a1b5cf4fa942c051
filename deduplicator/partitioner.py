"""Mappings applied (`common.mapping`): the records of one intermediate partition, cut into runs that go to one destination partition each.

Runs are written in the order of the records, so records that come to the same partition keep their order, whatever chose it. A key's partition is left to
the client, whose `partitioner` is the Java client's (`kafka_clients.transactional_producer`): that is done in C, after the records were handed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from common import mapping
from common.errors import SettingsInvalid
from common.routes import SAME, Place, Route
from deduplicator.call_limit import CallLimit
from deduplicator.unwrap import Record

BY_CLIENT = -1
"""RD_KAFKA_PARTITION_UA: the client chooses."""
Partitioner = Callable[[Sequence[Record]], Iterable[tuple[Place, Sequence[Record]]]]


def build_partitioner(route: Route, partition: int, partitions: int, limit: CallLimit) -> Partitioner:
    """Where the records of this intermediate partition go, in a destination topic with so many partitions."""
    topic, fixed = route.destination_topic, mapping.number(route.mapping)
    if route.mapping == SAME or fixed is not None:
        place = Place(topic, partition if fixed is None else fixed)
        return lambda records: [(place, records)]
    choose = _by_key(partition % partitions) if route.mapping == mapping.KEY else _by_function(route, partition, partitions, limit)

    def runs(records: Sequence[Record]) -> list[tuple[Place, Sequence[Record]]]:
        with limit:
            return [(Place(topic, chosen), list(run)) for chosen, run in groupby(records, choose)]
    return runs


def _by_key(without_key: int) -> Callable[[Record], int]:
    return lambda record: without_key if record[0] is None else BY_CLIENT


def _by_function(route: Route, partition: int, partitions: int, limit: CallLimit) -> Callable[[Record], int]:
    function = mapping.function(route.mapping)

    def place(record: mapping.SourceRecord) -> int:
        return function(record, partitions)

    def choose(record: Record) -> int:
        key, value, headers, timestamp_ms = record
        try:
            chosen = limit.call(place, mapping.SourceRecord(route.source_topic, partition, key, value, headers or [], timestamp_ms))
        except Exception as failed:
            raise _refused(route, partition, record, f"{type(failed).__name__}: {failed}") from failed
        if type(chosen) is not int or not 0 <= chosen < partitions:
            raise _refused(route, partition, record, f"it returned {chosen!r}, the destination topic has the partitions 0 to {partitions - 1}")
        return chosen
    return choose


def _refused(route: Route, partition: int, record: Record, why: str) -> SettingsInvalid:
    return SettingsInvalid(f"the mapping of {route} cannot place a record of {route.source(partition)} (key {record[0]!r:.80}, timestamp {record[3]}): {why}")
