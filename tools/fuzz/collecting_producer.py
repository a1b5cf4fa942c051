"""A producer of librdkafka's own without a broker, which gives back what it was handed: the records
that `compiled_path.c` hands over are read from librdkafka's memory, each as a broker would get it.

It is made through ctypes, with an interceptor: a producer of confluent-kafka takes none, and says
nothing of a record that was not produced by Python.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from confluent_kafka import cimpl

from common.envelope import OFFSET_MAX, Header
from deduplicator import compiled_path

PRODUCER = 0
PURGE_QUEUED_AND_IN_FLIGHT = 3
FLUSH_MS = 10_000
DESTINATION = ("orders-copy", 3)


class ProducedRecord(NamedTuple):
    """A record as a producer has it."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class Handover(NamedTuple):
    """What `reo_forward` has done; it counts as many records as there are here."""

    records: list[ProducedRecord]
    error: int
    position: int


class _Message(ctypes.Structure):
    """rd_kafka_message_t."""

    _fields_ = (
        ("err", ctypes.c_int),
        ("rkt", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


_ON_NEW = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_size_t,
)
_ON_SEND = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(_Message), ctypes.c_void_p
)


class CollectingProducer:
    """Accepts at most so many records at a time."""

    def __init__(self, records_max: int) -> None:
        self.rd_kafka = _declare_functions()
        self.collected: list[ProducedRecord] = []
        # kept, because librdkafka has only pointers to them
        self._interceptors = _ON_NEW(self._add_interceptor), _ON_SEND(self._collect)
        settings = self.rd_kafka.rd_kafka_conf_new()
        text = ctypes.create_string_buffer(512)
        for name, value in {
            b"queue.buffering.max.messages": b"%d" % records_max,
            b"message.max.bytes": b"1000000000",
            b"log_level": b"0",
        }.items():
            assert self.rd_kafka.rd_kafka_conf_set(settings, name, value, text, 512) == 0, (
                text.value
            )
        self.rd_kafka.rd_kafka_conf_interceptor_add_on_new(
            settings, b"collect", self._interceptors[0], None
        )
        self.pointer = self.rd_kafka.rd_kafka_new(PRODUCER, settings, text, 512)
        assert self.pointer, text.value

    def forward(
        self,
        value: bytes,
        above: int = -1,
        below: int = OFFSET_MAX,
        zero_timestamp_ms: int = 0,
    ) -> Handover:
        """Have `compiled_path.c` hand over the records of an envelope, and take them back."""
        self.collected.clear()
        error, position = ctypes.c_int32(), ctypes.c_int64()
        topic, partition = DESTINATION
        count = compiled_path.load_library().reo_forward(
            self.pointer,
            topic.encode(),
            partition,
            # without the zero byte that follows Python's bytes, so a sanitizer sees one too many
            ctypes.create_string_buffer(value, len(value)),
            len(value),
            above,
            below,
            zero_timestamp_ms,
            ctypes.byref(error),
            ctypes.byref(position),
        )
        self.rd_kafka.rd_kafka_purge(self.pointer, PURGE_QUEUED_AND_IN_FLIGHT)
        assert self.rd_kafka.rd_kafka_flush(self.pointer, FLUSH_MS) == 0
        assert count == len(self.collected)
        return Handover(list(self.collected), error.value, position.value)

    def close(self) -> None:
        """Destroy it."""
        self.rd_kafka.rd_kafka_destroy(self.pointer)

    def _add_interceptor(self, client: int, *_: object) -> int:
        return int(
            self.rd_kafka.rd_kafka_interceptor_add_on_send(
                client, b"collect", self._interceptors[1], None
            )
        )

    def _collect(self, _client: int, message: Any, _opaque: object) -> int:
        raw = message.contents
        topic = self.rd_kafka.rd_kafka_topic_name(raw.rkt).decode()
        assert (topic, raw.partition) == DESTINATION
        self.collected.append(
            ProducedRecord(
                self.rd_kafka.rd_kafka_message_timestamp(message, None),
                _copy_bytes(raw.key, raw.key_len),
                _copy_bytes(raw.payload, raw.len),
                tuple(self._read_headers(message)),
            )
        )
        return 0

    def _read_headers(self, message: Any) -> list[Header]:
        headers, name = ctypes.c_void_p(), ctypes.c_char_p()
        value, size = ctypes.c_void_p(), ctypes.c_size_t()
        found: list[Header] = []
        if self.rd_kafka.rd_kafka_message_headers(message, ctypes.byref(headers)):
            return found
        places = ctypes.byref(name), ctypes.byref(value), ctypes.byref(size)
        while not self.rd_kafka.rd_kafka_header_get_all(headers, len(found), *places):
            found.append((name.value or b"", _copy_bytes(value.value, size.value)))
        return found


def _copy_bytes(address: int | None, size: int) -> bytes | None:
    return None if address is None else ctypes.string_at(address, size)


def _declare_functions() -> ctypes.CDLL:
    """librdkafka, as confluent-kafka has loaded it, with the types of what is called here."""
    library = ctypes.CDLL(cimpl.__file__)
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    text = ctypes.c_char_p
    for name, result, parameters in (
        ("conf_new", pointer, ()),
        ("conf_set", number, (pointer, text, text, text, size)),
        ("conf_interceptor_add_on_new", number, (pointer, text, _ON_NEW, pointer)),
        ("interceptor_add_on_send", number, (pointer, text, _ON_SEND, pointer)),
        ("new", pointer, (number, pointer, text, size)),
        ("destroy", None, (pointer,)),
        ("purge", number, (pointer, number)),
        ("flush", number, (pointer, number)),
        ("topic_name", text, (pointer,)),
        ("message_timestamp", ctypes.c_int64, (pointer, pointer)),
        ("message_headers", number, (pointer, pointer)),
        ("header_get_all", number, (pointer, size, pointer, pointer, pointer)),
    ):
        function = getattr(library, f"rd_kafka_{name}")
        function.restype, function.argtypes = result, parameters
    return library
