"""The shape of a consumed message, for the type checker.

confluent-kafka's own stubs call every field of a message optional, because a message can also be an error. Whoever has looked at
`error()` holds one of these.
"""

from __future__ import annotations

from typing import Protocol

from confluent_kafka import KafkaError

Headers = list[tuple[str, bytes | None]]


class Consumed(Protocol):
    """A message that a consumer handed out."""

    def topic(self) -> str:
        """Where it was read."""

    def partition(self) -> int:
        """Where it was read."""

    def offset(self) -> int:
        """Where it was read."""

    def key(self) -> bytes | None:
        """None is a null key."""

    def value(self) -> bytes | None:
        """None is a tombstone."""

    def headers(self) -> Headers | None:
        """In order, names may repeat; None is the same as none."""

    def timestamp(self) -> tuple[int, int]:
        """Kind, and ms since 1970 UTC."""

    def error(self) -> KafkaError | None:
        """Set when this is not a record."""


def content(message: Consumed, instead_of_zero_ms: int = 0) -> tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]:
    """What is the same on both sides of an exact copy: key, value, headers, timestamp in ms; `instead_of_zero_ms` is what is written for a timestamp of 0.

    The kind of the timestamp may differ: a copy sets its own.
    """
    return message.key(), message.value(), tuple(message.headers() or ()), message.timestamp()[1] or instead_of_zero_ms
