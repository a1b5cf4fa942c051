"""A message that the compiled path has fetched, with the methods of confluent-kafka's `Message`: so
where Python decides about it, one code serves both.
"""

from __future__ import annotations

import ctypes

from common.records import Headers
from deduplicator.compiled_library import Library, RawMessage


class Message:
    """Has the interface of confluent-kafka's `Message`: `common.records.Consumed`."""

    __slots__ = ("_all_headers", "_at", "_key", "_leader_epoch", "_timestamp", "_value")

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        timestamp: tuple[int, int],
        headers: list[tuple[bytes, bytes | None]],
        leader_epoch: int | None,
    ) -> None:
        self._at = topic, partition, offset
        self._leader_epoch = leader_epoch
        self._key, self._value, self._timestamp, self._all_headers = key, value, timestamp, headers

    def topic(self) -> str:
        """The topic that it was read from."""
        return self._at[0]

    def partition(self) -> int:
        """The partition that it was read from."""
        return self._at[1]

    def offset(self) -> int:
        """Its offset in that partition."""
        return self._at[2]

    def key(self) -> bytes | None:
        """None is a null key."""
        return self._key

    def value(self) -> bytes | None:
        """None is a tombstone."""
        return self._value

    def headers(self) -> Headers | None:
        """In order; UnicodeDecodeError for a name that is not valid UTF-8."""
        return [(name.decode(), value) for name, value in self._all_headers] or None

    def timestamp(self) -> tuple[int, int]:
        """The timestamp type, and ms since 1970 UTC."""
        return self._timestamp

    def leader_epoch(self) -> int | None:
        """Of the leader that appended it; None where the broker does not report it."""
        return self._leader_epoch

    def error(self) -> None:
        """None: it is a record (`compiled_batch.FetchedMessages.error`)."""


def copy_message(library: Library, address: int) -> Message:
    """A copy of an `rd_kafka_message_t`."""
    raw = RawMessage.from_address(address)
    topic = library.rd_kafka.rd_kafka_topic_name(raw.rkt).decode() if raw.rkt else ""
    timestamp_type = ctypes.c_int()
    timestamp_ms = library.rd_kafka.rd_kafka_message_timestamp(
        address, ctypes.byref(timestamp_type)
    )
    return Message(
        topic,
        raw.partition,
        raw.offset,
        _read_bytes(raw.key, raw.key_len),
        _read_bytes(raw.payload, raw.len),
        (timestamp_type.value, timestamp_ms),
        _read_headers(library, address),
        read_leader_epoch(library, address),
    )


def read_leader_epoch(library: Library, address: int) -> int | None:
    """The leader epoch of an `rd_kafka_message_t`."""
    leader_epoch = int(library.rd_kafka.rd_kafka_message_leader_epoch(address))
    return None if leader_epoch < 0 else leader_epoch


def _read_headers(library: Library, address: int) -> list[tuple[bytes, bytes | None]]:
    name, value, size = ctypes.c_char_p(), ctypes.c_void_p(), ctypes.c_size_t()
    headers: list[tuple[bytes, bytes | None]] = []
    while not library.path.reo_header(
        address, len(headers), ctypes.byref(name), ctypes.byref(value), ctypes.byref(size)
    ):
        headers.append((name.value or b"", _read_bytes(value.value, size.value)))
    return headers


def _read_bytes(address: int | None, size: int) -> bytes | None:
    return None if address is None else ctypes.string_at(address, size)
