"""Filters that the tests name as `tests.harness.filter_functions:function`; the records are
`tests.harness.kafka.make_record`.
"""

from __future__ import annotations

from common.partition_mapping import SourceRecord
from tests.harness.copy_judge import Record


def number(value: bytes | None) -> int:
    """Which record it is."""
    return int((value or b"")[:10])


def no_thirds(record: SourceRecord) -> bool:
    """Two of three pass."""
    return number(record.value) % 3 > 0


def none(record: SourceRecord) -> bool:
    """Nothing passes."""
    record.headers.clear()  # what a function does to what it is told is its own business
    return False


def stumbles(record: SourceRecord) -> bool:
    """Like `no_thirds`, but for one in fifty."""
    if number(record.value) % 50 == 7:
        raise ValueError(f"no way\nto tell: {number(record.value)}")
    return no_thirds(record)


def forgets(record: SourceRecord) -> bool:
    """A function without a return."""
    return None


def every(record: SourceRecord) -> bool:
    """Everything passes."""
    return True


def unmarked(record: SourceRecord) -> bool:
    """Fails on a record that has the header `via` already."""
    assert "via" not in dict(record.headers)
    return True


def below(record: SourceRecord, limit: int) -> bool:
    """Those with a lower number; `limit` comes from `filter.options`."""
    return number(record.value) < limit


def passing(records: list[Record]) -> list[Record]:
    """What `no_thirds` lets pass, in order."""
    return [record for record in records if number(record.value) % 3]
