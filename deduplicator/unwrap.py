"""From an accepted envelope to the source's records, where they are needed one by one: by a filter,
a mapping, a destination outside of Kafka, the records of a torn transaction. Everywhere else the
envelope goes to the producer as it is (`deduplicator.compiled_path`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from common.envelope import (
    EnvelopeInvalid,
    EnvelopeRecord,
    Head,
    read_last_record,
    read_records,
)
from common.errors import RecordRefused
from common.frontier import KEPT, LastRecord
from common.kafka.intermediate_records import build_foreign_record_error
from common.partition_mapping import SourceRecord
from common.records import Consumed, Headers, compute_checksum
from common.routes import TopicPartition

Record = tuple[bytes | None, bytes | None, Headers | None, int]
"""A record as the source has it: key, value, headers (None without headers), timestamp in ms. A
plain tuple, because every record needs one.
"""


class AcceptedEnvelope(NamedTuple):
    """An envelope whose records above the frontier are new."""

    message: Consumed
    head: Head
    value: bytes
    above: int
    """The frontier before it: its records up to this source offset are copied already."""

    def read_records(self) -> list[EnvelopeRecord]:
        """The new records; ForeignRecord when the envelope is damaged."""
        try:
            records = read_records(self.value, self.head)
        except EnvelopeInvalid as reason:
            raise build_foreign_record_error(self.message, str(reason)) from None
        return [record for record in records if record.source_offset > self.above]

    def read_last_record(self) -> EnvelopeRecord | None:
        """The last one, if it is new; ForeignRecord as above."""
        if not self.head.record_count:
            return None
        try:
            record = read_last_record(self.value, self.head)
        except EnvelopeInvalid as reason:
            raise build_foreign_record_error(self.message, str(reason)) from None
        return record if record.source_offset > self.above else None


def find_last_record(
    envelopes: Sequence[AcceptedEnvelope],
) -> tuple[AcceptedEnvelope, EnvelopeRecord] | None:
    """The last new record of these envelopes, in order, with its envelope, if any."""
    for envelope in reversed(envelopes):
        record = envelope.read_last_record()
        if record is not None:
            return envelope, record
    return None


def unwrap_records(
    envelope: AcceptedEnvelope, records: Iterable[EnvelopeRecord], zero_timestamp_ms: int | None
) -> list[Record]:
    """Records of an envelope as the source has them; `zero_timestamp_ms` replaces timestamp 0."""
    return [unwrap(envelope, record, zero_timestamp_ms) for record in records]


def unwrap(
    envelope: AcceptedEnvelope, record: EnvelopeRecord, zero_timestamp_ms: int | None
) -> Record:
    """One record of an envelope as the source has it. 1970-01-01T00:00:00.000Z is replaced:
    librdkafka cannot write it, for it 0 means "now" (rd_kafka_msg_new0). RecordRefused without a
    replacement.
    """
    timestamp_ms = record.timestamp_ms or zero_timestamp_ms
    if timestamp_ms is None:
        raise build_zero_timestamp_error(envelope.head.source_partition, record.source_offset)
    return record.key, record.value, _decode_headers(record) or None, timestamp_ms


def build_source_record(source: TopicPartition, record: Record) -> SourceRecord:
    """A record as a user's function gets it."""
    key, value, headers, timestamp_ms = record
    return SourceRecord(
        source.topic, source.partition, key, value, list(headers or []), timestamp_ms
    )


def build_zero_timestamp_error(source_partition: int, source_offset: int) -> RecordRefused:
    """The error for a record with timestamp 0, when nothing says what to write in its place."""
    return RecordRefused(
        f"the source record in partition {source_partition} at offset {source_offset} has timestamp"
        " 0, which librdkafka cannot write: set destination.zero_timestamp=one to write 1 ms in its"
        " place",
        is_explained=True,
    )


def _decode_headers(record: EnvelopeRecord) -> Headers:
    return [(name.decode(), value) for name, value in record.headers]


def describe_last_record(record: EnvelopeRecord, left_out: bool) -> LastRecord:
    """The frontier's description of the last accepted record."""
    checksum = compute_checksum(
        record.key, record.value, _decode_headers(record), record.timestamp_ms
    )
    return LastRecord(record.source_offset, checksum, left_out)


def describe_written(record: Record) -> str:
    """A written record, for the frontier (`Frontier.last_written`)."""
    key, value, *_ = record
    return compute_record_checksum(record) + (KEPT if key is not None and value is not None else "")


def compute_record_checksum(record: Record) -> str:
    """As `common.records.compute_message_checksum` of the record when it is written."""
    key, value, headers, timestamp_ms = record
    return compute_checksum(key, value, headers or [], timestamp_ms)
