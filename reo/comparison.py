"""Two partitions held against each other, record by record and in step, up to the first difference.

Whole lists are compared at once, which costs a third of comparing record by record; only where two lists differ is it looked which record it is.
Memory is what the readers have fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from common.errors import RecordRefused
from common.records import Consumed, all_headers, content
from common.routes import Place

SHOWN_BYTES = 80
FIELDS = ("key", "value", "headers", "timestamp")
"""In the order of `common.records.content`."""
Batches = Generator[list[Consumed]]


@dataclass(slots=True)
class Comparison:
    """One source partition's result; `difference` tells the first one in words, empty when there is none."""

    place: Place
    source_next: int
    """From here on nothing was found equal yet; the same at the destination. Where the comparison begins, at first."""
    destination_next: int
    equal: int = 0
    difference: str = ""
    source_offset: int | None = None
    """Of the first difference; None where there is no record on that side, or no difference."""
    destination_offset: int | None = None
    begun: tuple[int, int] | None = None
    """The offsets of the first records that both have, where one side rightly lacks earlier ones (`reo.retention`); those are not compared."""
    cut: bool = False
    """Whether there were, or may have been, records before the first ones that were compared."""
    by_key: bool = False
    """Whether the newest record of each key was compared, because compaction had taken others; `equal` counts keys then."""

    def differs(self, wanted: Consumed | None, there: Consumed | None, difference: str) -> None:
        """Note the first difference."""
        self.source_offset, self.destination_offset = (None if message is None else message.offset() for message in (wanted, there))
        self.difference = difference

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        source_begin, destination_begin = self.begun or (None, None)
        return {"topic": self.place.topic, "partition": self.place.partition, "equal": self.equal, "by_key": self.by_key,
                "source_begin": source_begin, "destination_begin": destination_begin,
                "difference": self.difference or None, "source_offset": self.source_offset, "destination_offset": self.destination_offset}

    def __str__(self) -> str:
        """In words."""
        what = "keys have the same newest record (compacted)" if self.by_key else "records equal"
        begun = "" if self.begun is None else (f" from source offset {self.begun[0]} and destination offset {self.begun[1]} on, before which one side has "
                                               "no records (any more)")
        return f"{self.place}: {self.equal} {what}{begun}{'; ' + self.difference if self.difference else ''}"


def different(wanted: Consumed, there: Consumed) -> str:
    """The first difference in words: which fields, where, and both records."""
    names = [name for name, left, right in zip(FIELDS, content(wanted), content(there), strict=True) if left != right]
    return (f"{', '.join(names)} differ between source offset {wanted.offset()} and destination offset {there.offset()}:\n"
            f"    source      {shown(wanted)}\n    destination {shown(there)}")


def shown(message: Consumed) -> str:
    """A record in one line, shortened."""
    try:
        key, value, headers, timestamp = content(message)
    except RecordRefused as unreadable:
        return str(unreadable)
    return f"key={key!r:.{SHOWN_BYTES}} value={value!r:.{SHOWN_BYTES}} headers={list(headers)!r:.{SHOWN_BYTES}} timestamp={timestamp}"


def compare(source: Batches, destination: Batches, result: Comparison, instead_of_zero: int, progress: Callable[[Comparison], None],
            places_too: bool = False) -> None:
    """Walk both in step and fill the result; `instead_of_zero` is the timestamp that was written for 0. `progress` is called after each list.

    `places_too`: the copy is a table, whose rows have the source's offsets.
    """
    left: list[Consumed] = []
    right: list[Consumed] = []
    while True:
        left, right = left or next(source, []), right or next(destination, [])
        if not left or not right:
            break
        number = min(len(left), len(right))
        # `content`, written out: a call for each record would be a good part of the time
        wanted = [(message.key(), message.value(), headers or [], message.timestamp()[1] or instead_of_zero)
                  for message, headers in zip(left, all_headers(left[:number]), strict=False)]
        there = [(message.key(), message.value(), headers or [], message.timestamp()[1])
                 for message, headers in zip(right, all_headers(right[:number]), strict=False)]
        if wanted != there:
            first = next(place for place in range(number) if wanted[place] != there[place])
            _note(result, left, right, first)
            result.differs(left[first], right[first], different(left[first], right[first]))
            return
        if places_too and (displaced := [place for place in range(number) if left[place].offset() != right[place].offset()]):
            first = displaced[0]
            _note(result, left, right, first)
            result.differs(left[first], right[first], f"the record of source offset {left[first].offset()} is in the row of {right[first].offset()}")
            return
        _note(result, left, right, number)
        left, right = left[number:], right[number:]
        progress(result)
    if left:
        missing = len(left) + sum(map(len, source))
        result.differs(left[0], None, f"{missing} records are missing, from source offset {left[0].offset()} on: {shown(left[0])}")
    elif right:
        surplus = len(right) + sum(map(len, destination))
        result.differs(None, right[0], f"{surplus} records too many, from destination offset {right[0].offset()} on: {shown(right[0])}")


def _note(result: Comparison, left: list[Consumed], right: list[Consumed], equal: int) -> None:
    """So many of these are equal."""
    if equal:
        result.equal += equal
        result.source_next, result.destination_next = left[equal - 1].offset() + 1, right[equal - 1].offset() + 1
