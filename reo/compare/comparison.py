"""Two partitions compared record by record and in step, up to the first difference.

Whole lists are compared at once, which costs a third of comparing record by record. Only where two
lists differ, the record that differs is searched. The memory in use is what the readers have
fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any

from common.errors import RecordRefused
from common.records import Consumed, get_compared_content, list_headers
from common.routes import TopicPartition

FIELD_BYTES_MAX = 80
FIELDS = ("key", "value", "headers", "timestamp")
"""In the order of `common.records.get_compared_content`."""
Batches = Generator[list[Consumed]]


@dataclass(slots=True)
class Comparison:
    """The result of one source partition; `difference` describes the first difference, and is empty
    when there is none.
    """

    tp: TopicPartition
    source_next: int
    """The source offset after the last equal record; at first, where the comparison begins."""
    destination_next: int
    """The same at the destination."""
    equal: int = 0
    difference: str = ""
    source_offset: int | None = None
    """Of the first difference; None when that side has no record, or when there is no
    difference.
    """
    destination_offset: int | None = None
    common_start: tuple[int, int] | None = None
    """The offsets of the first records that both sides have, when one side legitimately lacks
    earlier ones (`reo.compare.common_start`). Those are not compared.
    """
    starts_late: bool = False
    """Whether there are, or may have been, records before the first ones that are compared."""
    by_key: bool = False
    """Whether the newest record of each key is compared, because compaction has removed others;
    `equal` then counts keys.
    """

    def set_difference(
        self, source_record: Consumed | None, destination_record: Consumed | None, difference: str
    ) -> None:
        """Note the first difference."""
        self.source_offset = None if source_record is None else source_record.offset()
        self.destination_offset = (
            None if destination_record is None else destination_record.offset()
        )
        self.difference = difference

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        source_begin, destination_begin = self.common_start or (None, None)
        return {
            "topic": self.tp.topic,
            "partition": self.tp.partition,
            "equal": self.equal,
            "by_key": self.by_key,
            "source_begin": source_begin,
            "destination_begin": destination_begin,
            "difference": self.difference or None,
            "source_offset": self.source_offset,
            "destination_offset": self.destination_offset,
        }

    def __str__(self) -> str:
        """As text for a person."""
        equal = "keys have the same newest record (compacted)" if self.by_key else "records equal"
        start = ""
        if self.common_start is not None:
            start = (
                f" from source offset {self.common_start[0]} and destination offset"
                f" {self.common_start[1]} on, before which one side has no records (any more)"
            )
        return (
            f"{self.tp}: {self.equal}"
            f" {equal}{start}{'; ' + self.difference if self.difference else ''}"
        )


def describe_difference(source_record: Consumed, destination_record: Consumed) -> str:
    """Which fields of two records differ, at which offsets, and both records."""
    names = [
        name
        for name, left, right in zip(
            FIELDS,
            get_compared_content(source_record),
            get_compared_content(destination_record),
            strict=True,
        )
        if left != right
    ]
    return (
        f"{', '.join(names)} differ between source offset {source_record.offset()} and destination"
        f" offset {destination_record.offset()}:\n    source      {format_record(source_record)}\n "
        f"   destination {format_record(destination_record)}"
    )


def format_record(message: Consumed) -> str:
    """A record in one line, shortened."""
    try:
        key, value, headers, timestamp = get_compared_content(message)
    except RecordRefused as unreadable:
        return str(unreadable)
    return (
        f"key={key!r:.{FIELD_BYTES_MAX}} value={value!r:.{FIELD_BYTES_MAX}}"
        f" headers={list(headers)!r:.{FIELD_BYTES_MAX}} timestamp={timestamp}"
    )


def compare_in_step(
    source: Batches,
    destination: Batches,
    result: Comparison,
    zero_timestamp_ms: int,
    progress: Callable[[Comparison], None],
    same_offsets: bool = False,
    source_has_more: Callable[[], bool] = lambda: False,
) -> None:
    """Read both sides in step and fill the result; calls `progress` after each list.

    `zero_timestamp_ms` is the timestamp that the copy has for 0. `same_offsets`: the copy is a
    table, whose rows have the source's offsets. `source_has_more`: whether the source has records
    after the last one of `source`, which the destination may have too.
    """
    left: list[Consumed] = []
    right: list[Consumed] = []
    while True:
        left, right = left or next(source, []), right or next(destination, [])
        if not left or not right:
            break
        count = min(len(left), len(right))
        # `get_compared_content` is inlined: a call for each record takes a large part of the time
        left_contents = [
            (
                message.key(),
                message.value(),
                headers or [],
                message.timestamp()[1] or zero_timestamp_ms,
            )
            for message, headers in zip(left, list_headers(left[:count]), strict=False)
        ]
        right_contents = [
            (message.key(), message.value(), headers or [], message.timestamp()[1])
            for message, headers in zip(right, list_headers(right[:count]), strict=False)
        ]
        if left_contents != right_contents:
            first = next(
                index for index in range(count) if left_contents[index] != right_contents[index]
            )
            _add_equal(result, left, right, first)
            result.set_difference(
                left[first], right[first], describe_difference(left[first], right[first])
            )
            return
        if same_offsets and (displaced := _find_displaced(left[:count], right[:count])):
            first = displaced[0]
            _add_equal(result, left, right, first)
            result.set_difference(
                left[first],
                right[first],
                f"the record of source offset {left[first].offset()} is in the row of"
                f" {right[first].offset()}",
            )
            return
        _add_equal(result, left, right, count)
        left, right = left[count:], right[count:]
        progress(result)
    if left or (right and not source_has_more()):
        _set_rest_as_difference(result, left, right, source, destination)


def _set_rest_as_difference(
    result: Comparison,
    left: list[Consumed],
    right: list[Consumed],
    source: Batches,
    destination: Batches,
) -> None:
    """One side has ended: what the other one has left is the difference."""
    if left:
        missing = len(left) + sum(map(len, source))
        result.set_difference(
            left[0],
            None,
            f"{missing} records are missing, from source offset {left[0].offset()} on:"
            f" {format_record(left[0])}",
        )
    elif right:
        surplus = len(right) + sum(map(len, destination))
        result.set_difference(
            None,
            right[0],
            f"{surplus} records too many, from destination offset {right[0].offset()} on:"
            f" {format_record(right[0])}",
        )


def _add_equal(result: Comparison, left: list[Consumed], right: list[Consumed], count: int) -> None:
    """The first `count` records of both lists are equal."""
    if count:
        result.equal += count
        result.source_next, result.destination_next = (
            left[count - 1].offset() + 1,
            right[count - 1].offset() + 1,
        )


def _find_displaced(left: list[Consumed], right: list[Consumed]) -> list[int]:
    """The indexes at which the offsets of two lists differ."""
    return [index for index in range(len(left)) if left[index].offset() != right[index].offset()]


def end_batches(batches: Batches, end: int | None) -> Batches:
    """The records before this offset."""
    with closing(batches):
        for batch in batches:
            if end is not None and batch[-1].offset() >= end:
                yield [message for message in batch if message.offset() < end]
                return
            yield batch


def split_into_batches(rows: Generator[Consumed]) -> Batches:
    """The rows in lists, as `visible_records.read_batches` yields records."""
    with closing(rows):
        while batch := list(islice(rows, 1000)):
            yield batch
