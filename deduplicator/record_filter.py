"""The filter of stage two (`common.filters`): applied to what the rule has accepted, before the transaction is begun.

What it leaves out is accepted all the same: the frontier moves over it in the transaction of the records around it, so it never comes back. What is at the
destination is held against what passes (`deduplicator.destination_check`), so a filter may not change its mind.

A record on which the function fails is a stop that names it, or is parked: written to a topic of its own in the same transaction, with headers behind its own
that say where it came from and what was wrong. What is parked is not counted in the frontier, so a torn transaction's may be parked twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from common import filters
from common.errors import FilterFailed
from common.mapping import SourceRecord
from common.routes import Place
from deduplicator.call_limit import CallLimit
from deduplicator.unwrap import Record

TOPIC, PARTITION, OFFSET, ERROR = (f"__parked.{name}" for name in ("topic", "partition", "offset", "error"))
"""The headers of a parked record, in this order, behind its own."""
REASON_MAX = 500


class FilterResult(NamedTuple):
    """What becomes of accepted records; all others are left out."""

    records: list[Record]
    source_offsets: list[int]
    """Of the records that pass."""
    parked: list[Record]
    cycles: int = 0
    """How many came from where they were to go (`deduplicator.provenance`); they are left out."""


class RecordFilter(Protocol):
    """Something between the rule and the transaction."""

    def filter_records(self, source: Place, records: Sequence[Record], source_offsets: Sequence[int]) -> FilterResult:
        """Decide over accepted records of a source partition, in order; it may not change its mind."""


class FunctionFilter:
    """The function, and what is done when it fails."""

    def __init__(self, name: str, park_failures: bool, limit: CallLimit) -> None:
        self.limit = limit
        self.name = name
        self.function = filters.function(name)
        self.park_failures = park_failures

    def filter_records(self, source: Place, records: Sequence[Record], source_offsets: Sequence[int]) -> FilterResult:
        """Ask for each record of a source partition, in order; FilterFailed at the first failure, unless they are parked."""
        result = FilterResult([], [], [])
        with self.limit:
            for record, source_offset in zip(records, source_offsets, strict=True):
                self._filter_one(source, record, source_offset, result)
        return result

    def _filter_one(self, source: Place, record: Record, source_offset: int, result: FilterResult) -> None:
        try:
            passes = self._call_function(source, record)
        except Exception as failed:  # whatever a user's function raises
            why = " ".join(f"{type(failed).__name__}: {failed}".split())[:REASON_MAX]
            if not self.park_failures:
                raise FilterFailed(f"filter.function {self.name} fails on the record at offset {source_offset} of {source}: {why}. "
                                   "Mend the function and start again, or set filter.on_error=park to have such records put aside") from failed
            result.parked.append(_parked(source, source_offset, record, why))
        else:
            if passes:
                result.records.append(record)
                result.source_offsets.append(source_offset)

    def _call_function(self, source: Place, record: Record) -> bool:
        key, value, headers, timestamp_ms = record
        passes = self.limit.call(self.function, SourceRecord(source.topic, source.partition, key, value, list(headers or []), timestamp_ms))
        if type(passes) is not bool:  # a forgotten return would drop everything
            raise TypeError(f"it returned {passes!r}, True or False is expected")
        return passes


def _parked(source: Place, source_offset: int, record: Record, why: str) -> Record:
    key, value, headers, timestamp_ms = record
    added = [(TOPIC, source.topic), (PARTITION, str(source.partition)), (OFFSET, str(source_offset)), (ERROR, why)]
    return key, value, [*(headers or []), *((name, text.encode(errors="backslashreplace")) for name, text in added)], timestamp_ms
