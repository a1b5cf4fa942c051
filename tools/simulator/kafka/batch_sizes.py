"""How many bytes a batch of records takes in message format v2, uncompressed: what
max.message.bytes limits.
"""

from __future__ import annotations

from collections.abc import Iterable

from tools.simulator.kafka.log_records import NewRecord

BATCH_BYTES = 61
"""Of a batch without records."""


def varint_bytes(number: int) -> int:
    """A zigzag varint."""
    return max(1, ((number << 1 if number >= 0 else (-number << 1) - 1).bit_length() + 6) // 7)


def part_bytes(part: bytes | None) -> int:
    """A key, value, or part of a header, with its length."""
    return 1 if part is None else varint_bytes(len(part)) + len(part)


def record_bytes(record: NewRecord, delta: int, delta_ms: int) -> int:
    """One record."""
    headers = record.headers or ()
    body = (
        1
        + varint_bytes(delta_ms)
        + varint_bytes(delta)
        + part_bytes(record.key)
        + part_bytes(record.value)
        + varint_bytes(len(headers))
        + sum(part_bytes(name.encode()) + part_bytes(value) for name, value in headers)
    )
    return body + varint_bytes(body)


def batch_bytes(records: Iterable[NewRecord]) -> int:
    """A batch."""
    total, first_ms = BATCH_BYTES, None
    for delta, record in enumerate(records):
        first_ms = record.timestamp_ms if first_ms is None else first_ms
        total += record_bytes(record, delta, record.timestamp_ms - first_ms)
    return total
