"""Where the records of one destination partition stand at the source: told by the data alone, or refused. Pure; it is handed readers.

A copy's destination partition is, by invariant 1 of the design, an unbroken run of the source partition's visible records. Retention takes records
from the beginning of either side only. So the frontier is the source offset that the last destination record has in the right
alignment of the two, and there are two cases.

**Anchored.** Both sides have everything from their first record on, and the copy begins at the source's beginning: the first record
stands at the first, so both are walked in step to the destination's end. Nothing is searched, so equal records are no question.

**Searched.** Otherwise the first records do not have to correspond. Every alignment in which the destination's end lies at the source is a
candidate when its last records (STRETCH_MAX, or all) are equal to the source's there. A candidate is believed only when the two sides, walked in
step over all that both have, are equal, and only when no other one is. Why that is sound: the right alignment passes every test, so when exactly one
passes it is the right one, provided that the right one is still at the source. A source that is whole has it. One whose
beginning was deleted could have lost it, and have the same records again later; so there DISTINCT_MIN different records have to correspond.

The search compares hashes: a collision can add a candidate, which the walk removes, and never hide one. Memory: STRETCH_MAX hashes of each
side. A compacted topic lost records from its middle: where the walk holds all the same, the copy is what it would be without.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from common.errors import CopyDiffers, FrontierLost
from common.records import Consumed, content
from reo.comparison import different, shown
from reo.sequence_search import ends_of

STRETCH_MAX = 100_000
DISTINCT_MIN = 10
CANDIDATES_MAX = 5
"""More places than this are not walked one by one: such records repeat too much to tell where the copy ends."""
Reading = Callable[[], Generator[Consumed]]


class Found(NamedTuple):
    """How far the copy is, and on how many records that rests."""

    source_offset: int
    destination_offset: int
    compared: int
    records: int
    """At the destination; more than `compared` where the source has lost its beginning."""


@dataclass(frozen=True, slots=True)
class Sides:
    """One partition on both sides; each reading begins anew at the first visible record."""

    name: str
    source: Reading
    destination: Reading
    source_whole: bool
    """Nothing was deleted from the beginning."""
    destination_whole: bool
    from_beginning: bool
    """The copy begins with the source's first record (`source.start`)."""
    zero_timestamp_ms: int = 0
    """What was written for a timestamp of 0 (`destination.zero_timestamp`)."""
    stretch_max: int = STRETCH_MAX

    def content(self, message: Consumed) -> tuple[object, ...]:
        """What has to be the same on both sides."""
        return content(message, self.zero_timestamp_ms)


def how_far(sides: Sides) -> Found | None:
    """The last destination record and the source's; None when nothing was copied. CopyDiffers, or FrontierLost when the data does not tell."""
    if sides.source_whole and sides.destination_whole and sides.from_beginning:
        found, difference = _walked(sides, 0, 0)
        if difference:
            raise CopyDiffers(f"{sides.name} is not a copy of the source's records from the beginning: {difference}. If the copy began elsewhere, "
                              "set source.start to what it was then")
        return found
    return _searched(sides)


def _walked(sides: Sides, skip_source: int, skip_destination: int) -> tuple[Found | None, str]:
    """Both sides in step up to the destination's end: the last pair, and the first difference in words."""
    compared, last_source, last_destination = 0, -1, -1
    with closing(sides.source()) as all_wanted, closing(sides.destination()) as all_there:
        source = islice(all_wanted, skip_source, None)
        for there in islice(all_there, skip_destination, None):
            wanted = next(source, None)
            if wanted is None:
                return None, f"the source ends after {compared} equal records, the destination goes on at offset {there.offset()}: {shown(there)}"
            if sides.content(wanted) != sides.content(there):
                return None, different(wanted, there)
            compared, last_source, last_destination = compared + 1, wanted.offset(), there.offset()
    return Found(last_source, last_destination, compared, compared + skip_destination) if compared else None, ""


def _searched(sides: Sides) -> Found | None:
    stretch: deque[int] = deque(maxlen=sides.stretch_max)
    records = 0
    with closing(sides.destination()) as destination:
        for records, message in enumerate(destination, 1):  # noqa: B007
            stretch.append(hash(sides.content(message)))
    if not records:
        if sides.destination_whole:
            return None
        raise FrontierLost(f"{sides.name} has no records any more (retention took them): the data does not tell how far the copy was. Copy to a new topic")
    unknown = set(stretch)

    def hashes(source: Iterable[Consumed]) -> Iterator[int]:
        for message in source:
            found = hash(sides.content(message))
            unknown.discard(found)
            yield found

    with closing(sides.source()) as source:
        ends = ends_of(hashes(source), stretch, not sides.source_whole, CANDIDATES_MAX + 1)
    if len(ends) > CANDIDATES_MAX:
        raise _ambiguous(sides, stretch, f"more than {CANDIDATES_MAX} places")
    if not ends:
        raise _nowhere(sides, stretch, unknown, records)
    return _only_one(sides, stretch, ends, records)


def _only_one(sides: Sides, stretch: Sequence[int], ends: Sequence[int], records: int) -> Found:
    """The one candidate that holds over all that both sides have."""
    held, differences = [], []
    for end in ends:
        if sides.source_whole and end < records:
            differences.append(f"its last records stand at the source, but only {end} records lead there, and {records} at the destination")
            continue
        found, difference = _walked(sides, max(0, end - records), max(0, records - end))
        if found:
            held.append(found)
        else:
            differences.append(difference)
    if not held:
        raise CopyDiffers(f"{sides.name} is not a copy of the source's records: {differences[0]}")
    if len(held) > 1:
        raise _ambiguous(sides, stretch, f"{len(held)} places, for instance up to source offset {held[0].source_offset} and up to {held[1].source_offset}")
    distinct = len(set(list(stretch)[-held[0].compared:]))
    if not sides.source_whole and distinct < DISTINCT_MIN:
        raise FrontierLost(f"{sides.name}: only {distinct} different records are left on both sides, and the source's beginning was deleted: "
                           f"that they stand at the source up to offset {held[0].source_offset} proves nothing "
                           f"(at least {DISTINCT_MIN} would). Copy to a new topic")
    return held[0]


def _ambiguous(sides: Sides, stretch: Sequence[int], places: str) -> FrontierLost:
    return FrontierLost(f"{sides.name}: the data does not tell how far the copy is: its last {len(stretch)} records ({len(set(stretch))} different ones) stand "
                        f"at the source in {places}, and where the copy began is not known. Copy to a new topic")


def _nowhere(sides: Sides, stretch: Sequence[int], unknown: set[int], records: int) -> CopyDiffers:
    """The record that gives it away: the first one that is not at the source at all, or, where that may have been deleted, the last."""
    positions = [records - len(stretch) + number for number, record in enumerate(stretch) if record in unknown]
    if not positions:
        return CopyDiffers(f"{sides.name}: its last {len(stretch)} records are at the source, but not in this order one after the other")
    with closing(sides.destination()) as destination:
        message = next(islice(destination, positions[0 if sides.source_whole else -1], None))
    deleted = "" if sides.source_whole else " (or no longer: the source's beginning was deleted, and if that took records behind the frontier, they are lost)"
    return CopyDiffers(f"{sides.name}: the record at destination offset {message.offset()} is not at the source{deleted}: {shown(message)}")
