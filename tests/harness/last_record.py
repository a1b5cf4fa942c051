"""The last copied record, as a frontier has it."""

from __future__ import annotations

from common.frontier import LastRecord
from common.records import compute_checksum
from tests.harness.kafka import make_record


def make_last_record(number: int) -> LastRecord:
    """The plain record with this number, at that offset."""
    record = make_record(number)
    return LastRecord(
        number,
        compute_checksum(record.key, record.value, list(record.headers), record.timestamp_ms),
    )
