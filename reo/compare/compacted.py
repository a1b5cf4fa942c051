"""A compacted partition and its copy: both must have the same newest record of each key.

When compaction removes a record, or a tombstone, is decided by each cluster alone. So a reader can
rely only on the newest record of each key; a tombstone is the same as no record of its key. The
result is valid only for a topic to which nobody writes meanwhile.

Memory is bounded for any number of keys: both sides are read for the keys of one part at a time. A
hash of the key decides its part. When a part has more than KEYS_MAX keys, the parts are halved and
the comparison begins again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from hashlib import blake2b
from typing import NamedTuple

from common.records import get_compared_content
from reo.compare.comparison import Batches, Comparison

KEYS_MAX = 500_000
ReadBatches = Callable[[], Batches]


class NewestRecord(NamedTuple):
    """The newest record of a key: a hash of its content, and its offset."""

    content: int
    offset: int


NewestByKey = dict[bytes, NewestRecord]


class TooManyKeys(Exception):
    """A part has more than KEYS_MAX keys."""


def compare_newest(
    source: ReadBatches,
    destination: ReadBatches,
    result: Comparison,
    zero_timestamp_ms: int,
    keys_max: int = KEYS_MAX,
) -> None:
    """Fill the result; each call of `source` and `destination` reads again from where the
    comparison began.
    """
    parts = 1
    result.by_key = True
    while True:
        try:
            result.equal = 0
            result.set_difference(None, None, "")
            for part in range(parts):
                left = _read_newest(source, part, parts, zero_timestamp_ms, keys_max)
                right = _read_newest(destination, part, parts, 0, keys_max)
                _compare_part(left, right, result)
                if result.difference:
                    break
        except TooManyKeys:
            parts *= 2
        else:
            return


def _compare_part(source: NewestByKey, destination: NewestByKey, result: Comparison) -> None:
    """Compare one part; the first difference is that of the key whose newest record has the lowest
    source offset.
    """
    keys = source.keys() | destination.keys()
    equal = {
        key
        for key in source.keys() & destination.keys()
        if source[key].content == destination[key].content
    }
    result.equal += len(equal)
    if keys == equal:
        return
    first = min(
        keys - equal, key=lambda key: (source if key in source else destination)[key].offset
    )
    result.source_offset, result.destination_offset = offsets = [
        newest[first].offset if first in newest else None for newest in (source, destination)
    ]
    sides = ", ".join(
        f"the {name} has none (any more)"
        if offset is None
        else f"the {name} has it at offset {offset}"
        for name, offset in zip(("source", "destination"), offsets, strict=True)
    )
    result.difference = (
        f"{len(keys - equal)} keys do not have the same newest record; of the first one {sides}"
    )


def _read_newest(
    read: ReadBatches, part: int, parts: int, zero_timestamp_ms: int, keys_max: int
) -> NewestByKey:
    newest: NewestByKey = {}
    with closing(read()) as batches:
        for messages in batches:
            for message in messages:
                key = _hash_key(message.key())
                if parts > 1 and int.from_bytes(key[:8], "big") % parts != part:
                    continue
                if message.value() is None:
                    newest.pop(key, None)
                    continue
                newest[key] = NewestRecord(
                    hash(get_compared_content(message, zero_timestamp_ms)), message.offset()
                )
                if len(newest) > keys_max:
                    raise TooManyKeys
    return newest


def _hash_key(key: bytes | None) -> bytes:
    """Keys of any length take the same memory. Records without a key, which a compacted topic
    refuses, share one entry.
    """
    return b"" if key is None else blake2b(key, digest_size=16).digest()
