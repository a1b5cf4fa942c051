"""`reo inspect`: prints records of the intermediate topics in readable form. Their origins are
bytes, which Kafka's console consumer cannot show.

It only reads; it commits nothing, and the service may run. A record that stage one did not write is
printed with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import Any

import orjson
from confluent_kafka import Consumer

from common import source_candidates
from common.errors import ForeignRecord, TopicMissing
from common.kafka import partition_offsets, permissions, topics, visible_records
from common.kafka.clients import create_admin_client, create_reader
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S
from common.kafka.intermediate_records import parse_header
from common.read_up_to_record import ReadUpTo
from common.records import Consumed
from common.routes import TopicPartition
from common.settings import Settings
from reo.output import align_columns

HEAD = (
    "intermediate",
    "offset",
    "source offset",
    "epoch",
    "attempt",
    "sequence",
    "timestamp",
    "key",
    "value",
)
KEY_MAX = 24
"""A longer key is cut after so many characters."""


def read_rows(
    settings: Settings, partition: int | None, begin: int | None, count: int
) -> Iterator[dict[str, Any]]:
    """The records of each partition from offset `begin` on, or the last ones; at most `count` of
    each.
    """
    client, consumer = (
        create_admin_client(settings.destination_cluster, settings),
        create_reader(settings.destination_cluster, settings),
    )
    routes = topics.list_routes(
        settings, create_admin_client(settings.source_cluster, settings), settings.connect_timeout_s
    )
    intermediate_topics = topics.describe(client, [route.intermediate_topic for route in routes])
    topic_partitions = [
        TopicPartition(name, number)
        for name, topic in intermediate_topics.items()
        for number in range(topic.partitions)
        if partition in (None, number)
    ]
    if not topic_partitions:
        which = "" if partition is None else f" with partition {partition}"
        raise TopicMissing(
            f"there is no intermediate topic{which} yet:"
            f" {', '.join(route.intermediate_topic for route in routes)}. Stage two creates it when"
            " it starts"
        )
    begins, ends = partition_offsets.list_bounds(client, topic_partitions)
    try:
        for tp in topic_partitions:
            first = max(begins[tp], ends[tp] - count if begin is None else begin)
            if first < ends[tp]:
                yield from _read_partition(consumer, tp, first, count)
    finally:
        consumer.close()


def _read_partition(
    consumer: Consumer, tp: TopicPartition, first: int, count: int
) -> Iterator[dict[str, Any]]:
    with closing(visible_records.read_visible(consumer, {tp: first}, REQUEST_TIMEOUT_S)) as records:
        yield from map(_describe_record, islice(records, count))


def _describe_record(message: Consumed) -> dict[str, Any]:
    key, value = message.key(), message.value()
    row: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "written_ms": message.timestamp()[1],
        "key": None if key is None else key.decode(errors="replace"),
        "value_bytes": None if value is None else len(value),
    }
    try:
        header = parse_header(message)
    except ForeignRecord as foreign:
        return row | {"foreign": str(foreign)}
    return row | (
        {
            "read_up_to" if isinstance(header, ReadUpTo) else "origin": {
                name: getattr(header, name) for name in header.__struct_fields__
            }
        }
    )


def format_text(rows: list[dict[str, Any]]) -> str:
    """A table."""
    return "\n".join(align_columns([HEAD, *map(_format_cells, rows)]))


def _format_cells(row: dict[str, Any]) -> tuple[str, ...]:
    tp, size = (
        f"{row['topic']}-{row['partition']}",
        "null" if row["value_bytes"] is None else f"{row['value_bytes']} bytes",
    )
    if "foreign" in row:
        return tp, str(row["offset"]), "not reo's", *("",) * 4, _shorten(row["key"]), size
    if "read_up_to" in row:
        read_up_to = row["read_up_to"]
        text = f"nothing to copy after {read_up_to['follows']}"
        numbers = (str(row["offset"]), str(read_up_to["source_offset"]), str(read_up_to["epoch"]))
        return tp, *numbers, "", "", text, "", ""
    origin = row["origin"]
    fields = (
        str(origin[name])
        for name in ("source_offset", "epoch", "attempt", "sequence", "timestamp_ms")
    )
    return tp, str(row["offset"]), *fields, _shorten(row["key"]), size


def _shorten(key: str | None) -> str:
    return "null" if key is None else repr(key[:KEY_MAX]) + ("…" if len(key) > KEY_MAX else "")


def run_command(
    settings: Settings, as_json: bool, partition: int | None, begin: int | None, count: int
) -> int:
    """The sub-command: exit code 0."""
    settings = source_candidates.select_answering(settings)
    permissions.check_permissions(settings, "inspect")
    rows = list(read_rows(settings, partition, begin, count))
    print("\n".join(orjson.dumps(row).decode() for row in rows) if as_json else format_text(rows))
    return 0
