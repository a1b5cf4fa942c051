"""Finds the first records that two partitions have in common, where retention or `source.start`
make their beginnings differ.

Records that the copy lacks at its beginning are no difference when they were deleted from the copy,
or when `source.start` lets the copy begin later; those that it has in addition are none when the
source's were deleted. Then the first records of the side that begins later are searched on the
other side, and the comparison begins with them. In all other cases, and when they are not found, it
begins with the first record of both sides: what is missing is a difference.

The first HEAD_RECORDS records are searched, as one sequence, and the first match counts. Records
that repeat in that way can match at more than one offset: then what is reported as equal is equal,
but how much was before it is not known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import closing
from itertools import islice

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, OffsetSpec

from common.kafka import partition_offsets
from common.kafka.visible_records import FROM_BEGINNING, read_visible
from common.records import get_compared_content
from common.routes import TopicPartition
from reo.compare.sequence_search import SequenceSearch

HEAD_RECORDS = 100
Content = tuple[object, ...]


class PartitionReader:
    """Reads one partition; `zero_timestamp_ms` is what the copy has for a timestamp of 0."""

    def __init__(
        self, client: AdminClient, reader: Consumer, tp: TopicPartition, zero_timestamp_ms: int = 0
    ) -> None:
        self.client = client
        self.reader = reader
        self.tp = tp
        self.zero_timestamp_ms = zero_timestamp_ms

    def read_head(self) -> tuple[int, list[Content]]:
        """The offset of the first visible record, and the contents of the first HEAD_RECORDS
        records; empty when there are none.
        """
        with closing(read_visible(self.reader, {self.tp: FROM_BEGINNING})) as records:
            head = list(islice(records, HEAD_RECORDS))
        return head[0].offset() if head else FROM_BEGINNING, [
            get_compared_content(message, self.zero_timestamp_ms) for message in head
        ]

    def find_sequence(self, sequence: Sequence[Content]) -> int | None:
        """The offset at which this sequence of records begins here: the first of the longest
        matches; None when not even the first record matches. When the match is not complete, this
        partition ends or differs there, and the comparison reports it.
        """
        search, longest, first_offset = SequenceSearch(sequence), 0, None
        offsets: deque[int] = deque(maxlen=len(sequence))
        begin = self._find_offset_not_after(sequence[0])
        with closing(read_visible(self.reader, {self.tp: begin})) as records:
            for message in records:
                offsets.append(message.offset())
                is_found = search.feed(get_compared_content(message, self.zero_timestamp_ms))
                if search.matched > longest:
                    longest, first_offset = search.matched, offsets[-search.matched]
                if is_found:
                    break
        return first_offset

    def end_offset(self) -> int:
        """The offset after the last record."""
        return partition_offsets.list_end_offsets(self.client, [self.tp])[self.tp]

    def _find_offset_not_after(self, record: Content) -> int:
        """An offset before which this record cannot be: a broker tells the first offset with this
        timestamp or a later one (KIP-79).
        """
        *_, timestamp_ms = record
        # 0 may be 1 in the copy, and a negative one has a special meaning
        if not isinstance(timestamp_ms, int) or timestamp_ms <= 1:
            return FROM_BEGINNING
        return partition_offsets.list_offsets(
            self.client, [self.tp], OffsetSpec.for_timestamp(timestamp_ms)
        )[self.tp]


def find_common_start(
    source: PartitionReader,
    destination: PartitionReader,
    source_head_deleted: bool,
    copy_head_missing: bool,
) -> tuple[int, int] | None:
    """The offsets of the first records that both sides have; None when the comparison begins with
    the first record of each side.

    `source_head_deleted`: the source's first records were deleted. `copy_head_missing`: the copy's
    first records were deleted, or the copy did not begin with the source's first record.
    """
    source_first, source_head = source.read_head()
    destination_first, destination_head = destination.read_head()
    if not source_head and source_head_deleted:
        return source.end_offset(), destination.end_offset()
    if all(left == right for left, right in zip(source_head, destination_head, strict=False)):
        return None
    if copy_head_missing and (offset := source.find_sequence(destination_head)) is not None:
        return offset, destination_first
    if source_head_deleted and (offset := destination.find_sequence(source_head)) is not None:
        return source_first, offset
    return None


def find_common_row(
    source: PartitionReader,
    first_row: int | None,
    source_head_deleted: bool,
    copy_head_missing: bool,
) -> tuple[int, int] | None:
    """As `find_common_start`, for a store, whose records have the source's offsets."""
    first_offset, head = source.read_head()
    first_offset = first_offset if head else source.end_offset()
    if first_row is None or first_row == first_offset:
        return None
    later = max(first_offset, first_row)
    is_allowed = copy_head_missing if first_row > first_offset else source_head_deleted
    return (later, later) if is_allowed else None
