"""From an intermediate record to the source's record: what stage one added is taken off, nothing else is touched.

A batch is turned into columns (messages, headers, origins), by partition, because `Message.headers()` builds a new list at each
call and is the dearest step of stage two: it is asked once. Batches are small (`deduplicator.intermediate`): what is made here for a record is
dead before the processor's cache has forgotten it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from common import origin as origins
from common.errors import RecordRefused
from common.frontier import LastRecord
from common.origin import Origin
from common.positions import foreign_record_error, parse_origin, parse_read_up_to
from common.read_up_to import ReadUpTo
from common.records import Consumed, Headers, all_headers, checksum
from common.routes import Place

Record = tuple[bytes | None, bytes | None, Headers | None, int]
"""A record as the source has it: key, value, headers (None when it has none), timestamp in ms. A plain tuple, because one is made for each."""


def checksum_of(record: Record) -> str:
    """What the frontier keeps of a record as it is written."""
    key, value, headers, timestamp_ms = record
    return checksum(key, value, headers or [], timestamp_ms)


class Said(NamedTuple):
    """A read-up-to record, and where in a batch it is."""

    position: int
    """How many records of the batch come before it."""
    intermediate_offset: int
    read_up_to: ReadUpTo


class Batch:
    """Consecutive messages of one intermediate partition."""

    __slots__ = ("headers", "messages", "origins", "said")

    def __init__(self) -> None:
        self.messages: list[Consumed] = []
        self.headers: list[Headers] = []
        self.origins: list[Origin] = []
        self.said: list[Said] = []
        """Read-up-to records; they are none of the messages."""

    @property
    def next_offset(self) -> int:
        """The intermediate offset to commit when the whole batch is decided."""
        last = self.messages[-1].offset() if self.messages else -1
        return max(last, self.said[-1].intermediate_offset if self.said else -1) + 1

    def follows(self, next_offset: int) -> bool:
        """Whether it begins at this intermediate offset and leaves none out."""
        begins = [*(message.offset() for message in self.messages[:1]), *(said.intermediate_offset for said in self.said[:1])]
        return min(begins) == next_offset and self.next_offset == next_offset + len(self.messages) + len(self.said)

    def parse(self, partition: int) -> None:
        """Read the origins; what is none of this partition is looked at by itself: a read-up-to record, or a ForeignRecord with what is wrong and where."""
        try:
            names, values = zip(*[own[-1] for own in self.headers], strict=True)
            parsed = origins.parse_all(values)
            if set(names) == {origins.HEADER} and {origin.source_partition for origin in parsed} == {partition}:
                self.origins = parsed
                return
        except (TypeError, ValueError, IndexError):
            pass
        messages, headers = self.messages, self.headers
        self.messages, self.headers, self.origins = [], [], []
        for message, own in zip(messages, headers, strict=True):
            read_up_to = parse_read_up_to(message)
            if read_up_to is not None:
                self.said.append(Said(len(self.messages), message.offset(), read_up_to))
                continue
            self.origins.append(parse_origin(message))
            self.messages.append(message)
            self.headers.append(own)

    def records(self, positions: Iterable[int], zero_timestamp_ms: int | None) -> list[Record]:
        """The source's records at these positions of the batch; `zero_timestamp_ms` is written in place of timestamp 0."""
        messages, headers, parsed = self.messages, self.headers, self.origins
        found: list[Record] = []
        for position in positions:
            message, own = messages[position], headers[position]
            timestamp_ms = parsed[position].timestamp_ms or self._instead_of_zero(position, zero_timestamp_ms)
            found.append((message.key(), message.value(), own[:-1] if len(own) > 1 else None, timestamp_ms))
        return found

    def last_record(self, position: int) -> LastRecord:
        """What the frontier keeps of the source's record at this position of the batch, when it is the last one accepted."""
        message, origin = self.messages[position], self.origins[position]
        return LastRecord(origin.source_offset, checksum(message.key(), message.value(), self.headers[position][:-1], origin.timestamp_ms))

    def _instead_of_zero(self, position: int, zero_timestamp_ms: int | None) -> int:
        """What stands for 1970-01-01T00:00:00.000Z, which librdkafka cannot write: it takes 0 for "now" (rd_kafka_msg_new0)."""
        if zero_timestamp_ms is None:
            origin = self.origins[position]
            raise RecordRefused(f"the source record in partition {origin.source_partition} at offset {origin.source_offset} has timestamp 0, which "
                                "librdkafka cannot write: set destination.zero_timestamp=one to have 1 ms written in its place")
        return zero_timestamp_ms


def by_partition(messages: Sequence[Consumed]) -> dict[Place, Batch]:
    """The batch, by intermediate partition, each origin parsed; ForeignRecord for a record that stage one did not write."""
    batches: dict[Place, Batch] = {}
    topic, partition, batch = "", -1, Batch()
    try:
        found = all_headers(messages)
    except RecordRefused as unreadable:
        raise foreign_record_error(str(unreadable)) from None
    for message, headers in zip(messages, found, strict=True):
        if message.partition() != partition or message.topic() != topic:  # the client hands out what it fetched: partition by partition
            topic, partition = message.topic(), message.partition()
            batch = batches.setdefault(Place(topic, partition), Batch())
        batch.messages.append(message)
        batch.headers.append(headers or [])
    for place, batch in batches.items():
        batch.parse(place.partition)
    return batches
