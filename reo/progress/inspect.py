"""`reo inspect`: prints the envelopes of the intermediate topics in readable form, and with
`--records` the source records in them. They are bytes, which Kafka's console consumer cannot show.

It only reads; it commits nothing, and the service may run. A record that stage one did not write,
or that is damaged, is printed with the reason, and one of an earlier version of reo as such.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from itertools import islice
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from common import source_pool
from common.envelope import EnvelopeInvalid, EnvelopeRecord, read_records
from common.errors import ForeignRecord, StageFailed, TopicMissing
from common.kafka import partition_offsets, permissions, source_topics, topics, visible_records
from common.kafka.clients import create_admin_client, create_admin_clients, create_reader
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S
from common.kafka.intermediate_records import build_foreign_record_error, parse_intermediate
from common.records import Consumed
from common.routes import TopicPartition, name_some
from common.settings import Settings
from reo.report import format_table, print_json

ENVELOPE_TITLES = "intermediate|offset|epoch|after|through|records|size|"
RECORD_TITLES = "intermediate|offset|source offset|timestamp|kind|key|value|headers"
HEAD = ("epoch", "after", "through", "records")
TIMESTAMP_KINDS = {-1: "none", 0: "create", 1: "append"}
KEY_MAX = 24
"""A longer key is cut after so many characters."""


def list_partitions(settings: Settings, partition: int | None) -> dict[TopicPartition, int]:
    """The intermediate partitions, each with the number of its source partition, or those of this
    source partition; TopicMissing when there are none.
    """
    source_admin, client = create_admin_clients(settings)
    routes = source_topics.list_routes(settings, source_admin, settings.connect_timeout_s)
    names = [route.intermediate_topic for route in routes]
    intermediate_topics = topics.look_up(
        settings.destination_cluster, client, names, settings.connect_timeout_s
    )
    source_partitions = {
        route.get_intermediate(number): source_partition
        for route in routes
        if route.intermediate_topic in intermediate_topics
        for number in range(intermediate_topics[route.intermediate_topic].partitions)
        if partition in (None, source_partition := route.get_source(number).partition)
    }
    if not source_partitions:
        which = "" if partition is None else f" with partition {partition}"
        raise TopicMissing(
            f"there is no intermediate topic{which} yet: {name_some(names)}. Stage two creates it"
            " when it starts"
        )
    return source_partitions


def read_rows(
    settings: Settings,
    source_partitions: Mapping[TopicPartition, int],
    begin: int | None,
    count: int,
    with_records: bool,
) -> Iterator[dict[str, Any]]:
    """The envelopes of each partition from offset `begin` on, or the last ones; at most `count` of
    each.
    """
    client = create_admin_client(settings.destination_cluster, settings)
    begins, ends = partition_offsets.list_bounds(client, source_partitions)
    with closing(create_reader(settings.destination_cluster, settings)) as consumer:
        for tp, source_partition in source_partitions.items():
            first = max(begins[tp], ends[tp] - count if begin is None else begin)
            for message in _read(client, consumer, tp, range(first, ends[tp]), count):
                yield describe_message(message, source_partition, with_records)


def _read(
    client: AdminClient, consumer: Consumer, tp: TopicPartition, offsets: range, count: int
) -> Iterator[Consumed]:
    """At most `count` records; those that stage two has deleted meanwhile are passed over."""
    while offsets and count:
        reading = visible_records.read_visible(consumer, {tp: offsets.start}, REQUEST_TIMEOUT_S)
        try:
            with closing(reading) as records:
                for message in islice(records, count):
                    yield message
                    offsets, count = range(message.offset() + 1, offsets.stop), count - 1
        except StageFailed:
            begin = partition_offsets.list_beginning_offsets(client, [tp])[tp]
            if begin <= offsets.start:
                raise
            offsets = range(begin, offsets.stop)
        else:
            return


def describe_message(
    message: Consumed, source_partition: int, with_records: bool
) -> dict[str, Any]:
    """A record of an intermediate topic as a JSON object."""
    value = message.value()
    row: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "written_ms": message.timestamp()[1],
        "bytes": None if value is None else len(value),
    }
    try:
        head = parse_intermediate(message, source_partition)
        if head is None:
            return row | {"old_format": True}
        row["envelope"] = {
            "source_identity": head.source_identity,
            "epoch": head.epoch,
            "after": head.after,
            "through": head.through,
            "records": head.record_count,
            "left_out": head.has_left_out,
        }
        if with_records:
            try:
                row["records"] = list(map(_describe_record, read_records(value or b"", head)))
            except EnvelopeInvalid as damage:
                raise build_foreign_record_error(message, str(damage)) from None
    except ForeignRecord as foreign:
        return row | {"foreign": str(foreign)}
    return row


def _describe_record(record: EnvelopeRecord) -> dict[str, Any]:
    return {
        "source_offset": record.source_offset,
        "timestamp_ms": record.timestamp_ms,
        "timestamp_kind": TIMESTAMP_KINDS[record.timestamp_kind],
        "key": None if record.key is None else record.key.decode(errors="replace"),
        "value_bytes": None if record.value is None else len(record.value),
        "headers": [name.decode(errors="replace") for name, _ in record.headers],
    }


def format_text(
    rows: list[dict[str, Any]], names: Collection[str], begin: int | None, with_records: bool
) -> str:
    """A table of envelopes, or of the records in them, if there are any; then a line for each of
    these topics that has none (from offset `begin` on).
    """
    empty = set(names).difference(row["topic"] for row in rows)
    why = ": what is copied is deleted" if begin is None else f" from offset {begin} on"
    lines = [f"nothing on {name}{why}" for name in sorted(empty)]
    if with_records and rows:
        cells = [cells for row in rows for cells in _format_records(row)]
        lines.insert(0, format_table(RECORD_TITLES, cells))
    elif rows:
        lines.insert(0, format_table(ENVELOPE_TITLES, map(_format_envelope, rows)))
    return "\n".join(lines)


def _format_envelope(row: dict[str, Any]) -> tuple[object, ...]:
    numbers = [row.get("envelope", {}).get(name, "") for name in HEAD]
    size = _format_size(row["bytes"])
    return f"{row['topic']}-{row['partition']}", row["offset"], *numbers, size, _describe(row)


def _format_records(row: dict[str, Any]) -> Iterator[tuple[object, ...]]:
    place = f"{row['topic']}-{row['partition']}", row["offset"]
    if not row.get("records"):
        yield *place, _describe(row), *("",) * 5
    for record in row.get("records", ()):
        yield (
            *place,
            record["source_offset"],
            record["timestamp_ms"],
            record["timestamp_kind"],
            _shorten(record["key"]),
            _format_size(record["value_bytes"]),
            ", ".join(record["headers"]),
        )


def _describe(row: dict[str, Any]) -> str:
    """What a record is that is no envelope, what an envelope says without records, and whether
    `filter.sql` has left some out.
    """
    if "foreign" in row:
        return "not reo's, or damaged"
    if "old_format" in row:
        return "of an earlier version of reo"
    envelope = row["envelope"]
    if envelope["after"] == envelope["through"]:
        return "a run begins"
    if not envelope["records"]:
        return "nothing to copy"
    return "filter.sql left records out" if envelope["left_out"] else ""


def _format_size(size: int | None) -> str:
    return "null" if size is None else f"{size} bytes"


def _shorten(key: str | None) -> str:
    return "null" if key is None else repr(key[:KEY_MAX]) + ("…" if len(key) > KEY_MAX else "")


def run_command(
    settings: Settings,
    as_json: bool,
    partition: int | None,
    begin: int | None,
    count: int,
    with_records: bool,
) -> int:
    """The command: exit code 0."""
    settings = source_pool.select_answering(settings)
    permissions.check_permissions(settings, "inspect")
    source_partitions = list_partitions(settings, partition)
    rows = list(read_rows(settings, source_partitions, begin, count, with_records))
    if as_json:
        for row in rows:
            print_json(row)
    else:
        names = {tp.topic for tp in source_partitions}
        print(format_text(rows, names, begin, with_records))
    return 0
