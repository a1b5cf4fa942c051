"""What a user's functions are told of a record, all six fields: a mapping and a filter."""

from __future__ import annotations

import pytest

from common.partition_mapping import SourceRecord
from common.routes import Route, TopicPartition
from deduplicator.partitioner import build_partitioner
from deduplicator.record_filter import FunctionFilter
from deduplicator.unwrap import Record
from deduplicator.user_call_timeout import CallLimit
from tests.harness import mappings

RECORD: Record = (b"k", b"0000000017", [("h", None)], 5)
TOLD = SourceRecord("orders", 3, b"k", b"0000000017", [("h", None)], 5)


def test_what_a_mapping_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record as the source has it, where it was, and how many partitions there are."""
    told: list[tuple[SourceRecord, int]] = []

    def place(record: SourceRecord, partitions: int) -> int:
        told.append((record, partitions))
        return 4

    monkeypatch.setattr(mappings, "by_last_digit", place)
    route = Route("orders", "copy", "copy-proxy", "tests.harness.mappings:by_last_digit")
    partition = build_partitioner(route, 3, 5, CallLimit())
    assert list(partition([RECORD])) == [(TopicPartition("copy", 4), [RECORD])]
    assert told == [(TOLD, 5)]


def test_what_a_filter_is_told() -> None:
    """The same; a record without headers has an empty list of them."""
    told: list[SourceRecord] = []

    def keep(record: SourceRecord) -> bool:
        told.append(record)
        return True

    bare: Record = (None, None, None, 0)
    source = TopicPartition("orders", 3)
    result = FunctionFilter({"keep": keep}, False, CallLimit()).filter_records(
        source, [RECORD, bare], [7, 8]
    )
    assert told == [TOLD, SourceRecord("orders", 3, None, None, [], 0)]
    assert (result.records, result.source_offsets, result.parked) == ([RECORD, bare], [7, 8], [])
