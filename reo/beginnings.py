"""Where two partitions begin alike: retention takes the first records of each side when it likes, and a copy need not begin with the source's first record.

What a copy lacks at its beginning is no difference where records were deleted from there, or where `source.start` says that it began later; what it has
more at its beginning is none where the source's were deleted. So there the first records of the side that begins later are looked for on the other side,
and the comparison begins with them. Everywhere else, and where they are not found, it begins with the first record of both: what is missing is missing.

The first STRETCH records are looked for, all of them in a row, and the first place where they stand is taken. Records that repeat in that way, down to their
timestamps, can stand in more than one place: then what is reported as equal is equal, but of how much was before it nothing is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from itertools import islice

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, OffsetSpec

from common import positions
from common.positions import FROM_BEGINNING, read_visible
from common.records import content
from common.routes import Place

STRETCH = 100
SILENCE_S = 60.0
Content = tuple[object, ...]


class Side:
    """One partition, and how its records are told from others; `instead_of_zero` is what is written at the destination for a timestamp of 0."""

    def __init__(self, client: AdminClient, reader: Consumer, place: Place, instead_of_zero: int = 0) -> None:
        self.client = client
        self.reader = reader
        self.place = place
        self.instead_of_zero = instead_of_zero

    def first(self) -> tuple[int, list[Content]]:
        """The offset of the first visible record, and what the first STRETCH records are; nothing where there is none."""
        with closing(read_visible(self.reader, {self.place: FROM_BEGINNING}, SILENCE_S)) as records:
            found = list(islice(records, STRETCH))
        return found[0].offset() if found else FROM_BEGINNING, [content(message, self.instead_of_zero) for message in found]

    def where(self, stretch: Sequence[Content]) -> int | None:
        """The offset from which on these records stand here: the first place of those where most of them do, and none when not even the first does.

        Where not all of them do, this side ends there, or differs there, and the comparison will say so.
        """
        begun: list[tuple[int, int]] = []  # how many of them stand at a place so far, and its offset; the first of these has most
        best, place = 0, None
        with closing(read_visible(self.reader, {self.place: self._not_before(stretch[0])}, SILENCE_S)) as records:
            for message in records:
                here = content(message, self.instead_of_zero)
                begun = [(stood + 1, offset) for stood, offset in begun if stretch[stood] == here]
                if here == stretch[0]:
                    begun.append((1, message.offset()))
                if begun and begun[0][0] > best:
                    best, place = begun[0]
                if best == len(stretch):
                    break
        return place

    def end(self) -> int:
        """The offset behind the last record."""
        return positions.ends(self.client, [self.place])[self.place]

    def _not_before(self, first: Content) -> int:
        """An offset that a record with this timestamp cannot be before: a broker knows the first one with this or a later timestamp (KIP-79)."""
        *_, timestamp_ms = first
        if not isinstance(timestamp_ms, int) or timestamp_ms <= 1:  # 0 may have become 1, and what is negative asks for something else
            return FROM_BEGINNING
        return positions.list_offsets(self.client, [self.place], OffsetSpec.for_timestamp(timestamp_ms))[self.place]


def aligned(source: Side, destination: Side, source_cut: bool, copy_cut: bool) -> tuple[int, int] | None:
    """The offsets of the first records that both have; None when the comparison begins with the first ones.

    `source_cut`: the source's first records were deleted; `copy_cut`: the copy's were, or it did not begin with the source's first.
    """
    (source_first, wanted), (destination_first, there) = source.first(), destination.first()
    if not wanted and source_cut:
        return source.end(), destination.end()
    if not wanted or not there or all(left == right for left, right in zip(wanted, there, strict=False)):
        return None
    if copy_cut and (found := source.where(there)) is not None:
        return found, destination_first
    if source_cut and (found := destination.where(wanted)) is not None:
        return source_first, found
    return None
