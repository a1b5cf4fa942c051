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
    missing: int = 0
    """How many records the source has after the last one of the destination, if that is the
    difference.
    """
    not_copied: int = 0
    """As many, if the frontier says that they are not copied yet: that is no difference."""
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
        self,
        source_record: Consumed | None,
        destination_record: Consumed | None,
        difference: str,
        missing: int = 0,
    ) -> None:
        """Note the first difference."""
        self.missing = missing
        self.source_offset, self.destination_offset = (
            None if record is None else record.offset()
            for record in (source_record, destination_record)
        )
        self.difference = difference

    def exclude_not_copied(self, copied_up_to: int) -> None:
        """A difference that is only that records after this source offset are missing is none."""
        if self.source_offset is not None and self.missing and self.source_offset > copied_up_to:
            self.not_copied, self.difference = self.missing, ""

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        source_begin, destination_begin = self.common_start or (None, None)
        return {
            **self.tp._asdict(),
            "equal": self.equal,
            "by_key": self.by_key,
            "source_begin": source_begin,
            "destination_begin": destination_begin,
            "difference": self.difference or None,
            "not_copied": self.not_copied,
            "source_offset": self.source_offset,
            "destination_offset": self.destination_offset,
        }

    def __str__(self) -> str:
        text = "keys have the same newest record (compacted)" if self.by_key else "records equal"
        if self.common_start is not None:
            text += (
                f" from source offset {self.common_start[0]} and destination offset"
                f" {self.common_start[1]} on, before which one side has no records (any more)"
            )
        if self.difference:
            text += f"; {self.difference}"
        if self.not_copied:
            text += f"; {self.not_copied} are not copied yet, from source offset"
            text += f" {self.source_offset} on"
        return f"{self.tp}: {self.equal} {text}"


def describe_difference(source_record: Consumed, destination_record: Consumed) -> str:
    """Which fields of two records differ, at which offsets, and both records."""
    contents = map(get_compared_content, (source_record, destination_record))
    fields = zip(FIELDS, *contents, strict=True)
    names = ", ".join(name for name, left, right in fields if left != right)
    return (
        f"{names} differ between source offset {source_record.offset()} and destination offset"
        f" {destination_record.offset()}:\n"
        f"    source      {format_record(source_record)}\n"
        f"    destination {format_record(destination_record)}"
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
        left_contents = _list_contents(left[:count], zero_timestamp_ms)
        right_contents = _list_contents(right[:count], 0)
        first, difference = count, ""
        if left_contents != right_contents:
            pairs = zip(left_contents, right_contents, strict=True)
            first = next(index for index, (one, other) in enumerate(pairs) if one != other)
            difference = describe_difference(left[first], right[first])
        elif same_offsets:
            offsets = [(left[index].offset(), right[index].offset()) for index in range(count)]
            displaced = (index for index, (one, other) in enumerate(offsets) if one != other)
            if (first := next(displaced, count)) < count:
                one, other = offsets[first]
                difference = f"the record of source offset {one} is in the row of {other}"
        if first:
            result.equal += first
            result.source_next = left[first - 1].offset() + 1
            result.destination_next = right[first - 1].offset() + 1
        if difference:
            result.set_difference(left[first], right[first], difference)
            return
        left, right = left[count:], right[count:]
        progress(result)
    if left:
        missing = len(left) + sum(map(len, source))
        text = f"{missing} records are missing, from source offset {left[0].offset()} on"
        result.set_difference(left[0], None, f"{text}: {format_record(left[0])}", missing)
    elif right and not source_has_more():
        surplus = len(right) + sum(map(len, destination))
        text = f"{surplus} records too many, from destination offset {right[0].offset()} on"
        result.set_difference(None, right[0], f"{text}: {format_record(right[0])}")


def _list_contents(messages: list[Consumed], zero_timestamp_ms: int) -> list[tuple[object, ...]]:
    """As `get_compared_content`, which takes a large part of the time when it is called for each
    record.
    """
    return [
        (message.key(), message.value(), headers or [], message.timestamp()[1] or zero_timestamp_ms)
        for message, headers in zip(messages, list_headers(messages), strict=True)
    ]


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
