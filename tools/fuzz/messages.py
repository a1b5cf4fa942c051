"""Consumed records made of bytes: what stage two's loop is given, without a broker.

The first byte of a record says which partition it is in, and what it has beside its value; the next
two, how long the value is; then comes the value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import KafkaError

from common.kafka.intermediate_records import OLD_HEADERS
from common.records import Headers

PARTITIONS = 4
IDENTITY = "0123456789abcdef"
"""Of the source topic."""
PLAIN, OLD_FORMAT, FOREIGN, TOMBSTONE = range(4)
"""What a record is: a value alone, as an envelope is; one of the old format, with its header last;
one with a key, or with a header that is not the old one; one without a value.
"""
KINDS: dict[int, tuple[bytes | None, Headers | None]] = {
    PLAIN: (None, None),
    OLD_FORMAT: (b"key", [("user", b"\0\xff"), (min(OLD_HEADERS), None)]),
    FOREIGN: (b"", [(max(OLD_HEADERS), b""), ("user", None)]),
    TOMBSTONE: (None, []),
}
"""Key and headers."""


@dataclass(frozen=True)
class Message:
    """A record of the intermediate topic."""

    at: int
    of_partition: int
    kind: int
    content: bytes

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
        """An envelope has none."""
        return KINDS[self.kind][0]

    def value(self) -> bytes | None:
        """Perhaps an envelope."""
        return None if self.kind == TOMBSTONE else self.content

    def headers(self) -> Headers | None:
        """An envelope has none."""
        return KINDS[self.kind][1]

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
    while len(data) >= 3:
        kind, partition = divmod(data[0] % (PARTITIONS * len(KINDS)), PARTITIONS)
        end = 3 + int.from_bytes(data[1:3], "big")
        yield Message(next_offsets[partition], partition, kind, data[3:end])
        next_offsets[partition] += 1
        data = data[end:]


def frame(partition: int, value: bytes, kind: int = PLAIN) -> bytes:
    """One record's bytes."""
    return bytes([kind * PARTITIONS + partition]) + len(value).to_bytes(2, "big") + value
