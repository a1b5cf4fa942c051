"""The filter of stage two: `filter.function`, Python functions with the keyword arguments of
`filter.options`. They are called with the records that the rule has accepted, before the
transaction begins. (The filter of stage one is `filter.sql`: what it leaves out is never sent.)

Records that it leaves out are accepted nevertheless: the frontier moves over them in the
transaction of the records around them, so they never come back. The destination's records are
compared with those that pass (`deduplicator.frontiers.frontier_check`), and a record is read again
after every restart, so a filter has to be deterministic.

If the function fails on a record, the service stops and names the record, or the record is parked:
written to a separate topic in the same transaction, with additional headers that say where it came
from and what failed. The frontier does not count parked records, so those of a torn transaction may
be parked twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol, cast

from common.errors import FilterFailed
from common.partition_mapping import SourceRecord, load_function
from common.routes import TopicPartition
from common.settings import Settings
from deduplicator.unwrap import Record, build_source_record
from deduplicator.user_call_timeout import CallLimit

TOPIC, PARTITION, OFFSET, ERROR = (
    f"__parked.{name}" for name in ("topic", "partition", "offset", "error")
)
"""The headers of a parked record, in this order, after its own."""
REASON_MAX = 500
Filter = Callable[[SourceRecord], bool]


def load_functions(settings: Settings) -> dict[str, Filter]:
    """The functions by name, each with its options; ValueError when one cannot be imported."""
    keywords = settings.filter.keywords
    return {
        name: cast(Filter, partial(load_function(name), **keywords.get(name, {})))
        for name in settings.filter.functions
    }


class FilterResult(NamedTuple):
    """The result for accepted records; those that are in neither list are left out."""

    records: list[Record]
    source_offsets: list[int]
    """Of the records that pass."""
    parked: list[Record]
    left_out: Counter[str]
    """How many each function has left out."""
    cycles: int = 0
    """How many came from the destination (`deduplicator.provenance`); they are left out."""


class RecordFilter(Protocol):
    """Filters records between the rule and the transaction."""

    def filter_records(
        self, source: TopicPartition, records: Sequence[Record], source_offsets: Sequence[int]
    ) -> FilterResult:
        """Filter accepted records of a source partition, in order; deterministic."""


class FunctionFilter:
    """filter.function with filter.options, and filter.on_error: park the record, or fail."""

    def __init__(
        self, functions: Mapping[str, Filter], park_failures: bool, limit: CallLimit
    ) -> None:
        self.limit = limit
        self.functions = functions
        """By name; a record passes when all of them return True."""
        self.park_failures = park_failures

    def filter_records(
        self, source: TopicPartition, records: Sequence[Record], source_offsets: Sequence[int]
    ) -> FilterResult:
        """Call the function for each record of a source partition, in order; FilterFailed at the
        first failure, unless failures are parked.
        """
        result = FilterResult([], [], [], Counter())
        with self.limit:
            for record, source_offset in zip(records, source_offsets, strict=True):
                self._filter_one(source, record, source_offset, result)
        return result

    def _filter_one(
        self, source: TopicPartition, record: Record, source_offset: int, result: FilterResult
    ) -> None:
        name = ""
        try:
            for name in self.functions:
                if not self._call_function(name, source, record):
                    result.left_out[name] += 1
                    return
        except Exception as failed:  # whatever a user's function raises
            error = " ".join(f"{type(failed).__name__}: {failed}".split())[:REASON_MAX]
            if not self.park_failures:
                raise FilterFailed(
                    f"filter.function {name} fails on the record at offset {source_offset} of"
                    f" {source}: {error}. Correct the function and start again, or set"
                    " filter.on_error=park to write such records to the parked topic"
                ) from failed
            result.parked.append(_build_parked_record(source, source_offset, record, error))
        else:
            result.records.append(record)
            result.source_offsets.append(source_offset)

    def _call_function(self, name: str, source: TopicPartition, record: Record) -> bool:
        passes = self.limit.call(self.functions[name], build_source_record(source, record))
        if type(passes) is not bool:  # a forgotten return would drop everything
            raise TypeError(f"it returned {passes!r}, True or False is expected")
        return passes


def _build_parked_record(
    source: TopicPartition, source_offset: int, record: Record, error: str
) -> Record:
    key, value, headers, timestamp_ms = record
    added = (source.topic, str(source.partition), str(source_offset), error)
    own = [
        (name, text.encode(errors="backslashreplace"))
        for name, text in zip((TOPIC, PARTITION, OFFSET, ERROR), added, strict=True)
    ]
    return key, value, [*(headers or []), *own], timestamp_ms
