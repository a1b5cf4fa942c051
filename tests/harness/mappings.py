"""Mappings that the tests name as `tests.harness.mappings:function`."""

from __future__ import annotations

from common.partition_mapping import SourceRecord


def by_last_digit(record: SourceRecord, partitions: int) -> int:
    """A place that the value's first ten digits decide (`tests.harness.kafka.make_record`)."""
    return int((record.value or b"")[:10]) % 10 % partitions


def out_of_range(record: SourceRecord, partitions: int) -> int:
    """A place that is none."""
    return partitions


def raises(record: SourceRecord, partitions: int) -> int:
    """No place at all."""
    raise KeyError(record.topic)
