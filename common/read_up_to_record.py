"""The read-up-to record: stage one reports that the source has nothing to copy between two offsets.

Transaction markers, aborted and compacted records, and records that `filter.sql` leaves out have
offsets that no record ever carries to stage two. When the source deletes them, the next start could
not distinguish them from lost records. So stage one writes to the intermediate topic how far there
is nothing, in a record without key and value. Its last header is this one, JSON:

    p  source partition             o  the last source offset of which there is nothing to copy
    f  the frontier that it follows e  epoch of the run that wrote it
    i  identity of the source topic x  whether filter.sql may have left records out there

Stage two moves the frontier from f to o and writes nothing (`deduplicator.read_up_to_advance`).
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct, field

from common.origin import OFFSET_MAX, Natural

HEADER = "__read_up_to"


class ReadUpTo(Struct, frozen=True, gc=False):
    """A read-up-to record; in JSON the fields have the names of the table above."""

    source_partition: Natural = field(name="p")
    source_offset: Natural = field(name="o")
    follows: Annotated[int, Meta(ge=-1, le=OFFSET_MAX)] = field(name="f")
    epoch: Natural = field(name="e")
    source_identity: str = field(name="i")
    left_out: bool = field(name="x", default=False)


parse = msgspec.json.Decoder(ReadUpTo).decode
"""Raises ValueError, with the reason, for an invalid value, and TypeError without a value."""
encode = msgspec.json.Encoder().encode
