"""Consumed records made of bytes: what `deduplicator.unwrap` is given, without a broker.

The first byte of a record says which partition and what stands around the header, the second one
how long the header's value is; then comes the value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import KafkaError

from common.origin import HEADER
from common.records import Headers

PARTITIONS = 4
IDENTITY = "0123456789abcdef"
"""Of the source topic."""
USER_HEADER = ("user", b"\0\xff")
"""A header of the source's record."""


@dataclass(frozen=True)
class Message:
    """A record of the intermediate topic; its key tells it from the others."""

    at: int
    of_partition: int
    all_headers: Headers | None

    def topic(self) -> str:
        """Of the intermediate topic."""
        return "orders-proxy"

    def partition(self) -> int:
        """Where it was read."""
        return self.of_partition

    def offset(self) -> int:
        """Where it was read."""
        return self.at

    def key(self) -> bytes | None:
        """Its number."""
        return b"%d" % self.at

    def value(self) -> bytes | None:
        """A tombstone."""
        return None

    def headers(self) -> Headers | None:
        """A new list at each call, as the client does it."""
        return None if self.all_headers is None else list(self.all_headers)

    def timestamp(self) -> tuple[int, int]:
        """Of the intermediate topic; nobody uses it."""
        return 1, 1_795_000_000_000

    def leader_epoch(self) -> int | None:
        """The same for all."""
        return 0

    def error(self) -> KafkaError | None:
        """It is a record."""
        return None


def parse_messages(data: bytes) -> Iterator[Message]:
    """The records that the bytes stand for; each partition's offsets are consecutive."""
    next_offsets = [0] * PARTITIONS
    while len(data) >= 2:
        head, length = data[:2]
        partition = head % PARTITIONS
        yield Message(
            next_offsets[partition], partition, _headers(head >> 2 & 3, data[2 : 2 + length])
        )
        next_offsets[partition] += 1
        data = data[2 + length :]


def frame(partition: int, layout: int, value: bytes) -> bytes:
    """One record's bytes; `layout` as in `_headers`."""
    return bytes([layout << 2 | partition, len(value)]) + value


def _headers(layout: int, value: bytes) -> Headers | None:
    """0: the origin alone. 1: after a user's header and one that only has its name. 2: not the
    last one. 3: no headers at all, or one without a value.
    """
    if layout == 0:
        return [(HEADER, value)]
    if layout == 1:
        return [USER_HEADER, (HEADER, b"mine"), (HEADER, value)]
    if layout == 2:
        return [(HEADER, value), USER_HEADER]
    return [(HEADER, None)] if value else None
