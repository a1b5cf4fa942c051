"""Prevents replication cycles (A → B → A): a header that says from which clusters a record was
copied.

A copy from A to B and one from B to A of the same topics would copy every record for ever. A topic
that is its own copy's source is refused when it is prepared (`topic_fitness`); a cycle over
two copies is visible only in the records. With `provenance.header` every written record gets one
more header, after its own, whose value is the id of the cluster that it was copied from. A record
with the destination's id in such a header came from there, and is accepted without being written,
as with a filter. The header stays, and each copy adds one, so longer cycles end too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from common.kafka import topics
from common.kafka.clients import create_admin_client
from common.routes import TopicPartition
from common.settings import Settings
from deduplicator.record_filter import FilterResult, FunctionFilter, RecordFilter, load_functions
from deduplicator.unwrap import Record
from deduplicator.user_call_timeout import CallLimit


class Provenance:
    """Adds the header to what passes; `record_filter` filters what was not copied here."""

    def __init__(
        self,
        header: str,
        source_cluster_id: str,
        destination_cluster_id: str,
        record_filter: RecordFilter | None = None,
    ) -> None:
        self.added_header = (header, source_cluster_id.encode())
        self.destination_header = (header, destination_cluster_id.encode())
        self.record_filter = record_filter

    def filter_records(
        self, source: TopicPartition, records: Sequence[Record], source_offsets: Sequence[int]
    ) -> FilterResult:
        """Leave out records from the destination, filter the others, and add the header."""
        new = [
            position
            for position, (_, _, headers, _) in enumerate(records)
            if not headers or self.destination_header not in headers
        ]
        result = FilterResult(
            [records[position] for position in new],
            [source_offsets[position] for position in new],
            [],
            Counter(),
        )
        if self.record_filter:
            result = self.record_filter.filter_records(
                source, result.records, result.source_offsets
            )
        marked: list[Record] = [
            (key, value, [*(headers or []), self.added_header], timestamp_ms)
            for key, value, headers, timestamp_ms in result.records
        ]
        return result._replace(records=marked, cycles=len(records) - len(new))


def build_record_filter(settings: Settings, limit: CallLimit) -> RecordFilter | None:
    """The filter that the settings define; None when every record is written unchanged."""
    functions, header = load_functions(settings), settings.provenance.header
    record_filter = (
        FunctionFilter(functions, settings.filter.on_error == "park", limit) if functions else None
    )
    if not header:
        return record_filter
    timeout_s = settings.connect_timeout_s
    source, destination = (
        topics.get_cluster_id(cluster, create_admin_client(cluster, settings), timeout_s)
        for cluster in (settings.source_cluster, settings.destination_cluster)
    )
    return Provenance(header, source, destination, record_filter)
