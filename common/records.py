"""Consumed messages: their type for mypy, their headers, which of their fields are compared, and
the checksum of these fields.

In confluent-kafka's own stubs every field of a message is optional, because a message can also be
an error. After a check of `error()`, the message is one of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Protocol

from confluent_kafka import KafkaError

from common.errors import RecordRefused

Headers = list[tuple[str, bytes | None]]


class Consumed(Protocol):
    """A message that a consumer returned."""

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
        """In order; names may repeat. None means no headers."""

    def timestamp(self) -> tuple[int, int]:
        """Kind, and ms since 1970 UTC."""

    def leader_epoch(self) -> int | None:
        """Of the leader that appended it; None where the broker does not report it."""

    def error(self) -> KafkaError | None:
        """Set when this is not a record."""


def list_headers(messages: Sequence[Consumed]) -> list[Headers | None]:
    """Those of each message; RecordRefused, which names the first one with a name that is not
    UTF-8. (A name with a NUL is cut off there: stage one refuses both.)

    confluent-kafka (2.16) returns such a name as a null pointer with an exception beside it, which
    `map` looks at; a method call in a loop that has run some times (PEP 659) does not, and the
    process dies of the pointer. It also dies when such a message is asked again: here nobody can.
    """
    headers: list[Headers | None] = []
    try:
        headers.extend(map(type(messages[0]).headers, messages) if messages else ())
    except (SystemError, UnicodeDecodeError):
        message = messages[len(headers)]
        raise RecordRefused(
            f"the record of {message.topic()}-{message.partition()} at offset {message.offset()}"
            " has a header whose name is not UTF-8: it can neither be copied nor compared",
            is_explained=True,
        ) from None
    return headers


def get_headers(message: Consumed) -> Headers:
    """The headers of one message; an empty list when it has none."""
    return list_headers([message])[0] or []


def get_compared_content(
    message: Consumed, instead_of_zero_ms: int = 0
) -> tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]:
    """What is the same on both sides of an exact copy: key, value, headers, timestamp in ms;
    `instead_of_zero_ms` is what is written for a timestamp of 0.

    The kind of the timestamp may differ: a copy sets its own.
    """
    return (
        message.key(),
        message.value(),
        tuple(get_headers(message)),
        message.timestamp()[1] or instead_of_zero_ms,
    )


def compute_message_checksum(message: Consumed) -> str:
    """The checksum of a record as it is in its topic."""
    return compute_checksum(
        message.key(), message.value(), get_headers(message), message.timestamp()[1]
    )


def compute_checksum(
    key: bytes | None, value: bytes | None, headers: Headers, timestamp_ms: int
) -> str:
    """16 hexadecimal digits over what is the same for every reader of a record. Spark and
    librdkafka tell a missing timestamp differently: it counts as 0.
    """
    digest = blake2b(b"%d %d" % (max(timestamp_ms, 0), len(headers)), digest_size=8)
    for part in (key, value, *(part for name, own in headers for part in (name.encode(), own))):
        digest.update(b" -" if part is None else b" %d " % len(part))
        digest.update(part or b"")
    return digest.hexdigest()
