"""Reads records of intermediate topics: each is an envelope (`common.envelope`), or has the format
of an earlier version of reo. Any other record was written by somebody else, or is damaged, and ends
the service.
"""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Consumer

from common.envelope import EnvelopeInvalid, Head, parse_head
from common.errors import ForeignRecord, RecordRefused
from common.kafka import visible_records
from common.records import Consumed, get_headers
from common.routes import TopicPartition

OLD_HEADERS = frozenset({"__origin", "__read_up_to"})
"""The last header of a record of the old format, which had one source record each."""


def read_newest_heads(
    reader: Consumer,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    sources: Mapping[TopicPartition, TopicPartition],
) -> dict[TopicPartition, Head]:
    """The head of each intermediate partition's newest envelope; `ranges` are (beginning, end), and
    `sources` the source partitions. Partitions that are empty, or end with a record of the old
    format, are left out.
    """
    newest = visible_records.read_first_records(
        reader, {tp: end - 1 for tp, (beginning, end) in ranges.items() if end > beginning}
    )
    heads = {
        tp: parse_intermediate(message, sources[tp].partition)
        for tp, message in newest.items()
        if message is not None
    }
    return {tp: head for tp, head in heads.items() if head is not None}


def parse_intermediate(message: Consumed, source_partition: int) -> Head | None:
    """The head of the envelope in an intermediate record; None for a record of the old format.
    ForeignRecord for any other record, and for an envelope that is not of this source partition.
    """
    try:
        headers = get_headers(message)
    except RecordRefused:
        raise build_foreign_record_error(message, "a header's name is not UTF-8") from None
    if headers and headers[-1][0] in OLD_HEADERS:
        return None
    if headers or message.key() is not None:
        raise build_foreign_record_error(message, "it has headers or a key, as no envelope has")
    try:
        head = parse_head(message.value())
    except EnvelopeInvalid as reason:
        raise build_foreign_record_error(message, str(reason)) from None
    if head.source_partition != source_partition:
        raise build_foreign_record_error(
            message, f"it is of source partition {head.source_partition}"
        )
    return head


def build_foreign_record_error(message: Consumed, reason: str) -> ForeignRecord:
    """The error for an intermediate record that is no valid envelope."""
    return ForeignRecord(
        f"the record on {message.topic()}-{message.partition()} at offset {message.offset()}:"
        f" {reason}. Stage one did not write it, or it is damaged: find out who writes to the"
        " intermediate topic, stop it, and skip the record with kafka-delete-records.sh up to the"
        " offset after it; stage one writes again what is missing"
    )
