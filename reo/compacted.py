"""A compacted partition and its copy: what both have to have is the newest record of each key.

Compaction takes a record when a newer one has its key, and a tombstone some time after it took the rest; when it does so is each cluster's own affair. So two
sides that are exact need not have the same records, and what a reader can rely on is the newest of each key: key, value, headers and timestamp.
A tombstone is the same as no record of its key.

Memory is bounded for any number of keys: both sides are read for the keys of one part at a time, parts being chosen by a hash of the key, and when a part has
more than KEYS_MAX they are made half as large and it is begun again. It is a comparison of what is there when it is read: of a topic that rests.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from hashlib import blake2b
from typing import NamedTuple

from common.records import content
from reo.comparison import Batches, Comparison

KEYS_MAX = 500_000
Reading = Callable[[], Batches]


class Newest(NamedTuple):
    """The newest record of a key: a hash of its content, and where it is."""

    content: int
    offset: int


Found = dict[bytes, Newest]


class TooMany(Exception):
    """A part has more than KEYS_MAX keys."""


def compare(source: Reading, destination: Reading, result: Comparison, instead_of_zero: int, keys_max: int = KEYS_MAX) -> None:
    """Fill the result; each reading begins anew where the comparison began."""
    parts = 1
    result.by_key = True
    while True:
        try:
            result.equal = 0
            result.differs(None, None, "")
            for part in range(parts):
                _held(_newest(source, part, parts, instead_of_zero, keys_max), _newest(destination, part, parts, 0, keys_max), result)
                if result.difference:
                    break
        except TooMany:
            parts *= 2
        else:
            return


def _held(wanted: Found, there: Found, result: Comparison) -> None:
    """One part: the first key, by its place at the source, whose newest record differs."""
    differing = [key for key in wanted.keys() | there.keys()
                 if (wanted[key].content if key in wanted else None) != (there[key].content if key in there else None)]
    result.equal += len(wanted.keys() & there.keys()) - sum(key in wanted and key in there for key in differing)
    if not differing:
        return
    first = min(differing, key=lambda key: wanted[key].offset if key in wanted else there[key].offset)
    result.source_offset, result.destination_offset = (found[first].offset if first in found else None for found in (wanted, there))
    sides = [f"the {name} has it at offset {found[first].offset}" if first in found else f"the {name} has none (any more)"
             for name, found in (("source", wanted), ("destination", there))]
    result.difference = f"{len(differing)} keys do not have the same newest record; of the first one {sides[0]}, {sides[1]}"


def _newest(read: Reading, part: int, parts: int, instead_of_zero: int, keys_max: int) -> Found:
    found: Found = {}
    with closing(read()) as batches:
        for messages in batches:
            for message in messages:
                key = _name(message.key())
                if parts > 1 and int.from_bytes(key[:8], "big") % parts != part:
                    continue
                if message.value() is None:
                    found.pop(key, None)
                    continue
                found[key] = Newest(hash(content(message, instead_of_zero)), message.offset())
                if len(found) > keys_max:
                    raise TooMany
    return found


def _name(key: bytes | None) -> bytes:
    """So that a key of any length takes the same room; a record without one cannot be compacted, and is one of its kind."""
    return b"" if key is None else blake2b(key, digest_size=16).digest()
