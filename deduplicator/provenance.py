"""Copies that go round: a header that says through which clusters a record came, and its use against A → B → A.

A copy from A to B and one from B to A of the same topics would send every record round for ever. A topic that is its own copy's source is refused when
it is prepared (`common.topics`); a way over two copies shows in the records only. With `provenance.header` every record that is written gets one header
more, behind its own, whose value is the id of the cluster that it was copied from; a record that has the destination's id in such a header came from there,
and is accepted without being written, as with a filter. The header stays, and one is added by each copy, so longer ways round end too.
"""

from __future__ import annotations

from collections.abc import Sequence

from common import topics
from common.kafka_clients import admin
from common.routes import Place
from common.settings import Settings
from deduplicator.call_limit import CallLimit
from deduplicator.record_filter import FilterResult, FunctionFilter, RecordFilter
from deduplicator.unwrap import Record


class Provenance:
    """Marks what passes; `record_filter` is asked about what did not come from the destination."""

    def __init__(self, header: str, source_cluster_id: str, destination_cluster_id: str, record_filter: RecordFilter | None = None) -> None:
        self.mark = (header, source_cluster_id.encode())
        self.own = (header, destination_cluster_id.encode())
        self.record_filter = record_filter

    def filter_records(self, source: Place, records: Sequence[Record], source_offsets: Sequence[int]) -> FilterResult:
        """What came from the destination is left out; the rest goes on to the filter, if there is one, and is marked."""
        new = [position for position, (_, _, headers, _) in enumerate(records) if not headers or self.own not in headers]
        result = FilterResult([records[position] for position in new], [source_offsets[position] for position in new], [])
        if self.record_filter:
            result = self.record_filter.filter_records(source, result.records, result.source_offsets)
        marked: list[Record] = [(key, value, [*(headers or []), self.mark], timestamp_ms) for key, value, headers, timestamp_ms in result.records]
        return FilterResult(marked, result.source_offsets, result.parked, len(records) - len(new))


def build_record_filter(settings: Settings, limit: CallLimit) -> RecordFilter | None:
    """What these settings put between the rule and the transaction; None when all that is accepted is written as it is."""
    function, header = settings.text("filter.function"), settings.text("provenance.header")
    record_filter = FunctionFilter(function, settings.text("filter.on_error") == "park", limit) if function else None
    if not header:
        return record_filter
    timeout_s = settings.number("connect_timeout_s")
    source, destination = (topics.cluster_id(cluster, admin(cluster, settings), timeout_s) for cluster in (settings.source, settings.destination))
    return Provenance(header, source, destination, record_filter)
