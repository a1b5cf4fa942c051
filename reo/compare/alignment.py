"""Finds the source offset of the last copied record of one destination partition from the data
alone, or refuses. No I/O: its readers are parameters.

By invariant 1 of the design, the destination partition of a copy is a contiguous sequence of the
source partition's visible records. Retention deletes records only from the beginning of either
side. So the frontier is the source offset of the last destination record in the right alignment of
the two sides. There are two cases.

**Anchored.** Both sides have everything from their first record on, and the copy begins at the
source's beginning: the first records correspond, so both sides are compared in step to the
destination's end. Nothing is searched, so repeated records do not matter.

**Searched.** Otherwise the first records do not have to correspond. Each source offset at which the
last destination records (TAIL_MAX, or all) are equal to the source's is a candidate for the
destination's end. A candidate is accepted only when the two sides, compared in step over all that
both have, are equal, and when no other candidate is. Why that is sound: the right alignment passes
every test, so when exactly one passes, it is the right one, provided that the source still has the
right one. A source that is whole has it. A source whose beginning was deleted may have lost it, and
have the same records again later; so there at least DISTINCT_MIN different records have to
correspond.

The search compares hashes: a collision can add a candidate, which the comparison in step removes,
and never hide one. Memory: TAIL_MAX hashes of each side.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from common.errors import CopyDiffers, FrontierLost
from common.records import Consumed, get_compared_content
from reo.compare.comparison import describe_difference, format_record
from reo.compare.sequence_search import find_ends

TAIL_MAX = 100_000
DISTINCT_MIN = 10
CANDIDATES_MAX = 5
"""More candidates than this are not compared one by one: such records repeat too much to tell where
the copy ends.
"""
OpenReader = Callable[[], Generator[Consumed]]


class LastCopiedPair(NamedTuple):
    """The last copied record on both sides, and how many records prove it."""

    source_offset: int
    destination_offset: int
    compared: int
    records: int
    """At the destination; more than `compared` when the source's beginning was deleted."""


@dataclass(frozen=True, slots=True)
class AlignmentInput:
    """One partition on both sides; each call of `source` or `destination` reads from the first
    visible record.
    """

    name: str
    source: OpenReader
    destination: OpenReader
    source_is_whole: bool
    """Nothing was deleted from the beginning."""
    destination_is_whole: bool
    from_beginning: bool
    """The copy begins with the source's first record (`source.start`)."""
    zero_timestamp_ms: int = 0
    """What the copy has for a timestamp of 0 (`destination.zero_timestamp`)."""
    tail_max: int = TAIL_MAX

    def get_content(self, message: Consumed) -> tuple[object, ...]:
        """What has to be equal on both sides."""
        return get_compared_content(message, self.zero_timestamp_ms)


def find_last_copied(sides: AlignmentInput) -> LastCopiedPair | None:
    """The last destination record and its source record; None when nothing was copied. CopyDiffers,
    or FrontierLost when the data does not tell.
    """
    if sides.source_is_whole and sides.destination_is_whole and sides.from_beginning:
        last, difference = _compare_in_step(sides, 0, 0)
        if difference:
            raise CopyDiffers(
                f"{sides.name} is not a copy of the source's records from the beginning:"
                f" {difference}. If the copy began elsewhere, set source.start to the value that it"
                " had then"
            )
        return last
    return _search(sides)


def _compare_in_step(
    sides: AlignmentInput, skip_source: int, skip_destination: int
) -> tuple[LastCopiedPair | None, str]:
    """Compare both sides in step up to the destination's end: the last pair, and the first
    difference as text.
    """
    last, compared = None, 0
    with closing(sides.source()) as all_source, closing(sides.destination()) as all_destination:
        source = islice(all_source, skip_source, None)
        for compared, copied in enumerate(islice(all_destination, skip_destination, None), 1):
            original = next(source, None)
            if original is None:
                return None, (
                    f"the source ends after {compared - 1} equal records, the destination goes on"
                    f" at offset {copied.offset()}: {format_record(copied)}"
                )
            if sides.get_content(original) != sides.get_content(copied):
                return None, describe_difference(original, copied)
            last = original.offset(), copied.offset()
    return (last and LastCopiedPair(*last, compared, compared + skip_destination)), ""


def _search(sides: AlignmentInput) -> LastCopiedPair | None:
    tail: deque[int] = deque(maxlen=sides.tail_max)
    records = 0
    with closing(sides.destination()) as destination:
        for records, message in enumerate(destination, 1):  # noqa: B007
            tail.append(hash(sides.get_content(message)))
    if not records:
        if sides.destination_is_whole:
            return None
        raise FrontierLost(
            f"{sides.name} has no records any more (retention deleted them): the data does not tell"
            " how far the copy was. Copy to a new topic"
        )
    unknown = set(tail)

    def hash_records(source: Iterable[Consumed]) -> Iterator[int]:
        for message in source:
            record = hash(sides.get_content(message))
            unknown.discard(record)
            yield record

    with closing(sides.source()) as source:
        ends = find_ends(hash_records(source), tail, not sides.source_is_whole, CANDIDATES_MAX + 1)
    if len(ends) > CANDIDATES_MAX:
        raise _build_ambiguous_error(sides, tail, f"more than {CANDIDATES_MAX} places")
    if not ends:
        raise _build_not_found_error(sides, tail, unknown, records)
    return _select_candidate(sides, tail, ends, records)


def _select_candidate(
    sides: AlignmentInput, tail: Sequence[int], ends: Sequence[int], records: int
) -> LastCopiedPair:
    """The one candidate for which all records that both sides have are equal."""
    equal, differences = [], []
    for end in ends:
        if sides.source_is_whole and end < records:
            differences.append(
                f"the source has its last records, but only {end} records up to there, and the"
                f" destination has {records}"
            )
            continue
        last, difference = _compare_in_step(sides, max(0, end - records), max(0, records - end))
        if last:
            equal.append(last)
        else:
            differences.append(difference)
    if not equal:
        raise CopyDiffers(f"{sides.name} is not a copy of the source's records: {differences[0]}")
    if len(equal) > 1:
        examples = f"source offset {equal[0].source_offset} and up to {equal[1].source_offset}"
        places = f"{len(equal)} places, for instance up to {examples}"
        raise _build_ambiguous_error(sides, tail, places)
    distinct = len(set(list(tail)[-equal[0].compared :]))
    if not sides.source_is_whole and distinct < DISTINCT_MIN:
        raise FrontierLost(
            f"{sides.name}: only {distinct} different records are left on both sides, and the"
            " source's beginning was deleted: that the source has them up to offset"
            f" {equal[0].source_offset} proves nothing (at least {DISTINCT_MIN} would). Copy to a"
            " new topic"
        )
    return equal[0]


def _build_ambiguous_error(sides: AlignmentInput, tail: Sequence[int], places: str) -> FrontierLost:
    return FrontierLost(
        f"{sides.name}: the data does not tell how far the copy is: the source has its last"
        f" {len(tail)} records ({len(set(tail))} different ones) in {places}, and where the copy"
        " began is not known. Copy to a new topic"
    )


def _build_not_found_error(
    sides: AlignmentInput, tail: Sequence[int], unknown: set[int], records: int
) -> CopyDiffers:
    """Names the first record that the source does not have, or the last one when the source may
    have deleted it.
    """
    positions = [
        records - len(tail) + number for number, record in enumerate(tail) if record in unknown
    ]
    if not positions:
        return CopyDiffers(
            f"{sides.name}: the source has its last {len(tail)} records, but not in this order one"
            " after the other"
        )
    with closing(sides.destination()) as destination:
        message = next(islice(destination, positions[0 if sides.source_is_whole else -1], None))
    deleted = "" if sides.source_is_whole else " (any more: its beginning was deleted)"
    return CopyDiffers(
        f"{sides.name}: the record at destination offset {message.offset()} is not at the"
        f" source{deleted}: {format_record(message)}"
    )
