"""From an intermediate record to the source's record: removes what stage one added, and changes
nothing else.

A batch is split by partition and turned into columns (messages, headers, origins), because
`Message.headers()` builds a new list at each call and is the most expensive step of stage two: it
is called once. Batches are small (`deduplicator.intermediate_consumer`), so the objects of a record
are freed while they are still in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from common import origin as origins
from common.errors import RecordRefused
from common.frontier import KEPT, LastRecord
from common.kafka.intermediate_records import (
    build_foreign_record_error,
    parse_origin,
    parse_read_up_to,
)
from common.origin import Origin
from common.read_up_to_record import ReadUpTo
from common.records import Consumed, Headers, compute_checksum, list_headers
from common.routes import TopicPartition

Record = tuple[bytes | None, bytes | None, Headers | None, int]
"""A record as the source has it: key, value, headers (None without headers), timestamp in ms. A
plain tuple, because every record needs one.
"""


def compute_record_checksum(record: Record) -> str:
    """The checksum of a record, for the frontier."""
    key, value, headers, timestamp_ms = record
    return compute_checksum(key, value, headers or [], timestamp_ms)


def describe_written(record: Record) -> str:
    """A written record, for the frontier (`Frontier.last_written`)."""
    key, value, *_ = record
    is_kept = key is not None and value is not None
    return compute_record_checksum(record) + (KEPT if is_kept else "")


class ReadUpToMessage(NamedTuple):
    """A read-up-to record, and its position in a batch."""

    position: int
    """How many records of the batch come before it."""
    intermediate_offset: int
    read_up_to: ReadUpTo


class Batch:
    """Consecutive messages of one intermediate partition."""

    __slots__ = ("headers", "messages", "origins", "read_up_to_messages")

    def __init__(self) -> None:
        self.messages: list[Consumed] = []
        self.headers: list[Headers] = []
        self.origins: list[Origin] = []
        self.read_up_to_messages: list[ReadUpToMessage] = []
        """Read-up-to records; `messages` does not contain them."""

    @property
    def next_offset(self) -> int:
        """The intermediate offset to commit when the whole batch is decided."""
        last = self.messages[-1].offset() if self.messages else -1
        return (
            max(
                last,
                (
                    self.read_up_to_messages[-1].intermediate_offset
                    if self.read_up_to_messages
                    else -1
                ),
            )
            + 1
        )

    @property
    def leader_epoch(self) -> int | None:
        """Of its last message: within a partition, leader epochs grow. None where it has only
        read-up-to records.
        """
        return self.messages[-1].leader_epoch() if self.messages else None

    def is_continuation(self, next_offset: int) -> bool:
        """Whether it begins at this intermediate offset and has no gap."""
        first_offsets = [
            *(message.offset() for message in self.messages[:1]),
            *(message.intermediate_offset for message in self.read_up_to_messages[:1]),
        ]
        return min(first_offsets) == next_offset and self.next_offset == next_offset + len(
            self.messages
        ) + len(self.read_up_to_messages)

    def parse(self, partition: int) -> None:
        """Parse the origins; if one is not of this partition, parse each by itself: it is a
        read-up-to record, or a ForeignRecord that says what is wrong.
        """
        try:
            names, values = zip(
                *[record_headers[-1] for record_headers in self.headers], strict=True
            )
            parsed = origins.parse_all(values)
            if set(names) == {origins.HEADER} and {
                origin.source_partition for origin in parsed
            } == {partition}:
                self.origins = parsed
                return
        except (TypeError, ValueError, IndexError):
            pass
        messages, headers = self.messages, self.headers
        self.messages, self.headers, self.origins = [], [], []
        for message, record_headers in zip(messages, headers, strict=True):
            read_up_to = parse_read_up_to(message)
            if read_up_to is not None:
                self.read_up_to_messages.append(
                    ReadUpToMessage(len(self.messages), message.offset(), read_up_to)
                )
                continue
            self.origins.append(parse_origin(message))
            self.messages.append(message)
            self.headers.append(record_headers)

    def list_records(self, positions: Iterable[int], zero_timestamp_ms: int | None) -> list[Record]:
        """The source's records at these positions of the batch; `zero_timestamp_ms` replaces
        timestamp 0.
        """
        messages, headers, parsed = self.messages, self.headers, self.origins
        records: list[Record] = []
        for position in positions:
            message, record_headers = messages[position], headers[position]
            timestamp_ms = parsed[position].timestamp_ms or self._replace_zero(
                position, zero_timestamp_ms
            )
            records.append(
                (
                    message.key(),
                    message.value(),
                    record_headers[:-1] if len(record_headers) > 1 else None,
                    timestamp_ms,
                )
            )
        return records

    def describe_record(self, position: int) -> LastRecord:
        """The frontier's description of the last accepted record, which is at this position of the
        batch.
        """
        message, origin = self.messages[position], self.origins[position]
        return LastRecord(
            origin.source_offset,
            compute_checksum(
                message.key(), message.value(), self.headers[position][:-1], origin.timestamp_ms
            ),
        )

    def _replace_zero(self, position: int, zero_timestamp_ms: int | None) -> int:
        """The replacement of 1970-01-01T00:00:00.000Z, which librdkafka cannot write: for it, 0
        means "now" (rd_kafka_msg_new0).
        """
        if zero_timestamp_ms is None:
            origin = self.origins[position]
            raise RecordRefused(
                f"the source record in partition {origin.source_partition} at offset"
                f" {origin.source_offset} has timestamp 0, which librdkafka cannot write: set"
                " destination.zero_timestamp=one to write 1 ms in its place"
            )
        return zero_timestamp_ms


def split_by_partition(messages: Sequence[Consumed]) -> dict[TopicPartition, Batch]:
    """The messages by intermediate partition, with parsed origins; ForeignRecord for a record that
    stage one did not write.
    """
    batches: dict[TopicPartition, Batch] = {}
    topic, partition, batch = "", -1, Batch()
    try:
        headers_of_messages = list_headers(messages)
    except RecordRefused as unreadable:
        raise build_foreign_record_error(str(unreadable)) from None
    for message, headers in zip(messages, headers_of_messages, strict=True):
        # the client returns fetched messages partition by partition
        if message.partition() != partition or message.topic() != topic:
            topic, partition = message.topic(), message.partition()
            batch = batches.setdefault(TopicPartition(topic, partition), Batch())
        batch.messages.append(message)
        batch.headers.append(headers or [])
    for tp, batch in batches.items():
        batch.parse(tp.partition)
    return batches
