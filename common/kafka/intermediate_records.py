"""Reads records of intermediate topics: the origin that stage one wrote with each, or up to which
offset it has read the source.

A record without it was written by somebody else, and ends the service.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import Consumer

from common import origin as origins
from common import read_up_to_record
from common.errors import ForeignRecord, RecordRefused
from common.kafka import visible_records
from common.origin import Origin
from common.read_up_to_record import ReadUpTo
from common.records import Consumed, get_headers
from common.routes import TopicPartition


def read_last_origins(
    reader: Consumer, ranges: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, Origin | ReadUpTo]:
    """Read the origin, or the read-up-to header, of each intermediate partition's last record;
    `ranges` are (beginning, end). Empty partitions are left out.
    """
    newest = visible_records.read_first_records(
        reader, {tp: end - 1 for tp, (beginning, end) in ranges.items() if end > beginning}
    )
    return {tp: parse_header(message) for tp, message in newest.items() if message is not None}


def parse_header(message: Consumed) -> Origin | ReadUpTo:
    """What stage one says of an intermediate record; ForeignRecord as below."""
    return parse_read_up_to(message) or parse_origin(message)


def parse_origin(message: Consumed) -> Origin:
    """The origin of an intermediate record; ForeignRecord when it has none, or one of another
    partition.
    """
    with _raise_foreign_record(message):
        headers = get_headers(message)
        if not headers or headers[-1][0] != origins.HEADER:
            raise ValueError(f"its last header is not {origins.HEADER}")
        if headers[-1][1] is None:
            raise ValueError("the header has no value")
        origin = origins.parse(headers[-1][1])
        if origin.source_partition != message.partition():
            raise ValueError(f"its origin is partition {origin.source_partition}")
    return origin


def parse_read_up_to(message: Consumed) -> ReadUpTo | None:
    """The content of a read-up-to record; None for any other record, ForeignRecord when it is of
    another partition.
    """
    with _raise_foreign_record(message):
        headers = get_headers(message)
        if not headers or headers[-1][0] != read_up_to_record.HEADER:
            return None
        content = read_up_to_record.parse(headers[-1][1] or b"")
        if content.source_partition != message.partition():
            raise ValueError(f"it is of partition {content.source_partition}")
    return content


@contextmanager
def _raise_foreign_record(message: Consumed) -> Iterator[None]:
    """Raise ForeignRecord, with partition and offset, for an error in a record of an intermediate
    topic.
    """
    try:
        yield
    except RecordRefused as unreadable:
        raise build_foreign_record_error(str(unreadable)) from None
    except ValueError as reason:
        raise build_foreign_record_error(
            f"the record on {message.topic()}-{message.partition()} at offset {message.offset()}:"
            f" {reason}"
        ) from None


def build_foreign_record_error(record: str) -> ForeignRecord:
    """The error for a record of an intermediate topic."""
    return ForeignRecord(
        f"{record}. Stage one did not write it: find out who writes to the intermediate topic, stop"
        " it, and skip the record with kafka-delete-records.sh up to the offset after it; stage"
        " one writes again what is missing"
    )
