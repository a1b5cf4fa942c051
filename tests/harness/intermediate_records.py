"""Intermediate records for unit tests: envelopes of one partition, and records that are none."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, cast

from confluent_kafka import Message

from common.envelope import EnvelopeRecord, Head, Header
from common.records import Consumed
from common.routes import TopicPartition
from deduplicator.frontiers.frontier_check import Surplus
from deduplicator.unwrap import Record, compute_record_checksum
from tools.envelope_encoder import encode

IDENTITY = "0123456789abcdef"
HERE, THERE = TopicPartition("t-proxy", 0), TopicPartition("t", 0)
"""An intermediate partition, and where it is copied to."""
EPOCH = 5
TIMESTAMP_MS = 1_700_000_000_000


def build_message(
    value: bytes | None,
    offset: int,
    key: bytes | None = None,
    headers: list[tuple[str, bytes | None]] | None = None,
    tp: TopicPartition = HERE,
) -> Consumed:
    """A record of an intermediate partition."""
    message = Message(
        topic=tp.topic,
        partition=tp.partition,
        offset=offset,
        key=key,
        value=value,
        headers=headers,
        timestamp=(1, TIMESTAMP_MS),
    )
    return cast(Consumed, message)


def build_source_record(
    source_offset: int, timestamp_ms: int | None = None, headers: tuple[Header, ...] = ()
) -> EnvelopeRecord:
    """The source's record at this offset."""
    timestamp_ms = TIMESTAMP_MS + source_offset if timestamp_ms is None else timestamp_ms
    return EnvelopeRecord(
        source_offset, timestamp_ms, 0, b"%d" % source_offset, b"x" * 100, headers
    )


def build_envelope(
    offset: int,
    after: int,
    through: int,
    source_offsets: Iterable[int] | None = None,
    tp: TopicPartition = HERE,
    records: Sequence[EnvelopeRecord] | None = None,
    **fields: Any,
) -> Consumed:
    """The intermediate record at `offset`, with all records of its stretch or with these, of the
    run with EPOCH unless a field of its head says otherwise.
    """
    if records is None:
        offsets = range(after + 1, through + 1) if source_offsets is None else source_offsets
        records = [build_source_record(source_offset) for source_offset in offsets]
    head = Head(IDENTITY, EPOCH, tp.partition, after, through)
    return build_message(encode(head._replace(**fields), records), offset, tp=tp)


def build_envelopes(*ends: int, after: int = -1, **fields: Any) -> list[Consumed]:
    """Consecutive envelopes with all source records, which end at these source offsets."""
    begins = (after, *ends)
    return [
        build_envelope(offset, *stretch, **fields)
        for offset, stretch in enumerate(itertools.pairwise(begins))
    ]


def unwrap_offsets(*source_offsets: int) -> list[Record]:
    """How these records are written."""
    records = map(build_source_record, source_offsets)
    return [(record.key, record.value, None, record.timestamp_ms) for record in records]


def build_surplus(records: Iterable[Record], first_offset: int = 0) -> Surplus:
    """These records are at the destination, and no frontier counts them."""
    checksums = map(compute_record_checksum, records)
    return Surplus(THERE, -1, deque(enumerate(checksums, first_offset)))
