"""The judge: is the copy exact? It imports nothing of reo, so that no error of reo can hide in it.

It reads both topics `read_committed`, partition by partition, and compares two lists of records.
The copy is exact when the lists are equal; the verdict needs nothing else. How the lists differ is
for the reader of a failed test:

    missing     in the source, not in the copy
    duplicated  in the copy more often than in the source
    changed     another record in the place of a missing source record
    phantom     in the copy, never in the source
    aborted     in the copy, and in the source only in a transaction that was aborted
    reordered   on both sides, in another order

A record is its key, value, headers in order, and timestamp in ms.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

EXAMPLES = 3
SILENCE_S = 60


class Record(NamedTuple):
    """The fields that must be equal on both sides. The producer replaces a timestamp of 0 by the
    current time.
    """

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = 0


Partitions = dict[int, list[Record]]


@dataclass
class Differences:
    """The differences of one partition.

    Positions of missing records are those in the source, all others those in the copy; a changed
    record has both.
    """

    missing: list[int] = field(default_factory=list)
    duplicated: list[int] = field(default_factory=list)
    changed: list[tuple[int, int]] = field(default_factory=list)
    phantom: list[int] = field(default_factory=list)
    reordered: list[int] = field(default_factory=list)
    aborted: list[int] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether there is a difference."""
        return any(vars(self).values())

    def __str__(self) -> str:
        """Counts, with the first positions."""
        return ", ".join(
            f"{len(positions)} {name} (at {', '.join(map(str, positions[:EXAMPLES]))}"
            + (" …)" if len(positions) > EXAMPLES else ")")
            for name, positions in vars(self).items()
            if positions
        )


def compare_records(
    source: Sequence[Record], copy: Sequence[Record], invisible: Sequence[Record] = ()
) -> Differences:
    """Compare one partition's copy with its source, record by record; no differences if and only if
    the lists are equal.

    `invisible` are the source's aborted records, for naming only.
    """
    differences = Differences()
    if list(source) == list(copy):
        return differences
    in_source, in_copy, aborted = Counter(source), Counter(copy), set(invisible)
    source_common, missing = _split(source, in_copy)
    copy_common, surplus = _split(copy, in_source)
    differences.aborted = [
        position
        for position, _ in surplus
        if copy[position] not in in_source and copy[position] in aborted
    ]
    unknown = [
        (position, gap)
        for position, gap in surplus
        if copy[position] not in in_source and copy[position] not in aborted
    ]
    differences.duplicated = [position for position, _ in surplus if copy[position] in in_source]
    unknown_by_gap = defaultdict(list)
    for position, gap in unknown:
        unknown_by_gap[gap].append(position)
    for position, gap in missing:
        if unknown_by_gap[gap]:
            differences.changed.append((position, unknown_by_gap[gap].pop(0)))
        else:
            differences.missing.append(position)
    differences.phantom = sorted(
        position for positions in unknown_by_gap.values() for position in positions
    )
    common_positions = zip(source_common, copy_common, strict=True)
    differences.reordered = [
        copy_position
        for source_position, copy_position in common_positions
        if source[source_position] != copy[copy_position]
    ]
    return differences


def _split(
    records: Sequence[Record], others: Counter[Record]
) -> tuple[list[int], list[tuple[int, int]]]:
    """Positions of the records that the other side has as well, and the rest, each with how many
    common ones precede it.
    """
    unmatched = others.copy()
    common: list[int] = []
    rest: list[tuple[int, int]] = []
    for position, record in enumerate(records):
        if unmatched[record] > 0:
            unmatched[record] -= 1
            common.append(position)
        else:
            rest.append((position, len(common)))
    return common, rest


def compare_partitions(
    source: Partitions, copy: Partitions, invisible: Partitions | None = None
) -> list[str]:
    """One line for each partition that is not exact; a partition that only one side has counts as
    empty on the other.
    """
    differences_by_partition = {
        partition: compare_records(
            source.get(partition, []), copy.get(partition, []), (invisible or {}).get(partition, [])
        )
        for partition in sorted({*source, *copy})
    }
    return [
        f"partition {partition}: {differences}"
        for partition, differences in differences_by_partition.items()
        if differences
    ]


def compare_counters(copy: Partitions, reported_records: int, uncertain_records: int) -> list[str]:
    """Compare the service's count with the copy: never more, and less only by `uncertain_records`,
    which the service cannot know.
    """
    copied_records = sum(map(len, copy.values()))
    if copied_records - uncertain_records <= reported_records <= copied_records:
        return []
    counted = f"the service counted {reported_records} records, {copied_records} are there"
    return [f"{counted}; it may have missed at most {uncertain_records}"]


def to_record(message: Any) -> Record:
    """The fields of a consumed message that must be equal."""
    headers = tuple(message.headers() or ())
    return Record(message.key(), message.value(), headers, message.timestamp()[1])


def read_topic(address: str, topic: str, isolation: str = "read_committed") -> Partitions:
    """Every record that a consumer reads, from the beginning to the current end."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "judge",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "check.crcs": True,
        }
    )
    try:
        partitions = sorted(consumer.list_topics(topic, SILENCE_S).topics[topic].partitions)
        # asked for again while a new partition has no leader
        consumer.assign([TopicPartition(topic, one, OFFSET_BEGINNING) for one in partitions])
        records_by_partition: Partitions = {partition: [] for partition in partitions}
        unfinished_partitions = set(partitions)
        last_message_s = time.monotonic()
        while unfinished_partitions:
            messages: list[Any] = consumer.consume(10_000, 0.1)
            last_message_s = time.monotonic() if messages else last_message_s
            if time.monotonic() > last_message_s + SILENCE_S:
                raise RuntimeError(
                    f"reading {topic}: no message for {SILENCE_S} s, partitions"
                    f" {sorted(unfinished_partitions)} are not read to their end"
                )
            for message in messages:
                if message.error() is None:
                    records_by_partition[message.partition()].append(to_record(message))
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    unfinished_partitions.discard(message.partition())
                else:
                    raise RuntimeError(f"reading {topic}: {message.error()}")
    finally:
        consumer.close()
    return records_by_partition
