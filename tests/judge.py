"""The judge: is the copy exact? It imports nothing of reo, so that no misunderstanding of reo's can hide in it.

It reads both topics `read_committed`, partition by partition, and compares two lists of records. Equal lists are exact; that is
the whole verdict, and it needs no cleverness. What the judge says about lists that differ is for the reader of a failed test:

    missing     in the source, not in the copy
    duplicated  in the copy more often than in the source
    changed     stands where a source record is missing, and is another one
    phantom     in the copy, never in the source
    aborted     in the copy, and in the source only in a transaction that was aborted
    reordered   the records that both have come in another order

A record is its key, value, headers in order, and timestamp in ms.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

EXAMPLES = 3
SILENCE_S = 60


class Record(NamedTuple):
    """What has to be the same on both sides. A timestamp of 0 is "now" to the client that writes it."""

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = 0


Partitions = dict[int, list[Record]]


@dataclass
class Differences:
    """What is wrong with one partition.

    Positions of missing records are those in the source, all others those in the copy; a changed record has both.
    """

    missing: list[int] = field(default_factory=list)
    duplicated: list[int] = field(default_factory=list)
    changed: list[tuple[int, int]] = field(default_factory=list)
    phantom: list[int] = field(default_factory=list)
    reordered: list[int] = field(default_factory=list)
    aborted: list[int] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether anything is wrong."""
        return any(vars(self).values())

    def __str__(self) -> str:
        """Counts, with the first positions."""
        return ", ".join(f"{len(places)} {name} (at {', '.join(map(str, places[:EXAMPLES]))}{' …' if len(places) > EXAMPLES else ''})"
                         for name, places in vars(self).items() if places)


def compare_records(source: Sequence[Record], copy: Sequence[Record], invisible: Sequence[Record] = ()) -> Differences:
    """Hold one partition's copy against its source; no differences if and only if the lists are equal.

    `invisible` are the source's aborted records, for naming only.
    """
    found = Differences()
    if list(source) == list(copy):
        return found
    in_source, in_copy, undone = Counter(source), Counter(copy), set(invisible)
    source_common, missing = _split(source, in_copy)
    copy_common, surplus = _split(copy, in_source)
    found.aborted = [place for place, _ in surplus if copy[place] not in in_source and copy[place] in undone]
    unknown = [(place, gap) for place, gap in surplus if copy[place] not in in_source and copy[place] not in undone]
    found.duplicated = [place for place, _ in surplus if copy[place] in in_source]
    strangers = defaultdict(list)
    for place, gap in unknown:
        strangers[gap].append(place)
    for place, gap in missing:
        if strangers[gap]:
            found.changed.append((place, strangers[gap].pop(0)))
        else:
            found.missing.append(place)
    found.phantom = sorted(place for places in strangers.values() for place in places)
    found.reordered = [there for here, there in zip(source_common, copy_common, strict=True) if source[here] != copy[there]]
    return found


def _split(records: Sequence[Record], others: Counter[Record]) -> tuple[list[int], list[tuple[int, int]]]:
    """Positions of the records that the other side has as well, and the rest, each with how many common ones precede it."""
    left = others.copy()
    common: list[int] = []
    rest: list[tuple[int, int]] = []
    for place, record in enumerate(records):
        if left[record] > 0:
            left[record] -= 1
            common.append(place)
        else:
            rest.append((place, len(common)))
    return common, rest


def compare_partitions(source: Partitions, copy: Partitions, invisible: Partitions | None = None) -> list[str]:
    """One line for each partition that is not exact; a partition that only one side has counts as empty on the other."""
    found = {partition: compare_records(source.get(partition, []), copy.get(partition, []), (invisible or {}).get(partition, []))
             for partition in sorted({*source, *copy})}
    return [f"partition {partition}: {differences}" for partition, differences in found.items() if differences]


def compare_counters(copy: Partitions, said: int, unsure: int) -> list[str]:
    """What the service says that it wrote, against what is there: never more, and less only by what it could not know of (`unsure`)."""
    there = sum(map(len, copy.values()))
    return [] if there - unsure <= said <= there else [f"the service counted {said} records, {there} are there; it may have missed at most {unsure}"]


def read_topic(address: str, topic: str, isolation: str = "read_committed") -> Partitions:
    """Every record that a reader sees, from the beginning to what is there now."""
    consumer = Consumer({
        "bootstrap.servers": address, "group.id": "judge", "isolation.level": isolation, "enable.auto.commit": False,
        "auto.offset.reset": "error", "enable.partition.eof": True, "fetch.wait.max.ms": 20, "check.crcs": True,
    })
    try:
        partitions = sorted(consumer.list_topics(topic, SILENCE_S).topics[topic].partitions)
        begins = {partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), SILENCE_S)[0] for partition in partitions}
        consumer.assign([TopicPartition(topic, partition, begin) for partition, begin in begins.items()])
        found: Partitions = {partition: [] for partition in partitions}
        unfinished = set(partitions)
        heard = time.monotonic()
        while unfinished:
            messages: list[Any] = consumer.consume(10_000, 0.1)
            heard = time.monotonic() if messages else heard
            if time.monotonic() > heard + SILENCE_S:
                raise RuntimeError(f"reading {topic}: nothing for {SILENCE_S} s, partitions {sorted(unfinished)} are not at their end")
            for message in messages:
                if message.error() is None:
                    record = Record(message.key(), message.value(), tuple(message.headers() or ()), message.timestamp()[1])
                    found[message.partition()].append(record)
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(message.partition())
                else:
                    raise RuntimeError(f"reading {topic}: {message.error()}")
    finally:
        consumer.close()
    return found
