"""Loads the library that is built from `compiled_path.c`, and has its structures for Python.
`deduplicator.compiled_queue` and `deduplicator.compiled_batch` use them.

ctypes, and no extension module: to build the file needs only a compiler (no headers of Python or of
librdkafka), it works with every version of Python, and each call releases the GIL.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, Producer, cimpl

VERSIONS = frozenset({("2.16.1", "2.16.0")})
"""The versions of confluent-kafka and of librdkafka with which the compiled path was tested: other
ones may have another object layout, or other events.
"""
FOLDER = Path(__file__).parent
"""The folder of the library."""
VERSION = (str(confluent_kafka.__version__), str(confluent_kafka.libversion()[0]))
BATCH_MAX = 1000
"""As in compiled_path.c."""
Numbers = ctypes.c_int64 * BATCH_MAX
SmallNumbers = ctypes.c_int32 * BATCH_MAX
Pointers = ctypes.c_void_p * BATCH_MAX
OBJECT_HEAD = object.__basicsize__


class CompiledPathUnavailable(Exception):
    """Why the compiled path cannot be used."""


class RawMessage(ctypes.Structure):
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


class RawBatch(ctypes.Structure):
    """`batch` in compiled_path.c."""

    _fields_ = (
        ("count", ctypes.c_int64),
        ("error", ctypes.c_int64),
        ("error_text", ctypes.c_char * 512),
        ("runs", ctypes.c_int64),
        ("run_begins", ctypes.c_int32 * (BATCH_MAX + 1)),
        ("events", Pointers),
        ("messages", Pointers),
        ("topics", Pointers),
        ("offsets", Numbers),
        ("source_offsets", Numbers),
        ("timestamps_ms", Numbers),
        ("origins", Pointers),
        ("origin_sizes", Numbers),
        ("partitions", SmallNumbers),
        ("plain", SmallNumbers),
    )


class RawRule(ctypes.Structure):
    """`rule` in compiled_path.c."""

    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in (
            "frontier",
            "epoch",
            "link_offset",
            "link_attempt",
            "link_sequence",
            "hole_first",
            "hole_last",
            "duplicates",
            "stale",
            "holes",
        )
    )


TYPES: dict[str, Any] = {
    "void": None,
    "int": ctypes.c_int,
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
    "text": ctypes.c_char_p,
    "pointer": ctypes.c_void_p,
}
OF_HOT_PATH = """
    text   reo_bind        text
    int64  reo_batch_size
    int64  reo_take        pointer int int64 pointer
    void   reo_free        pointer
    int    reo_header      pointer int64 pointer pointer pointer
    int64  reo_scan        pointer int64 int64 text pointer pointer
    int64  reo_forward     pointer text int32 pointer pointer int64 pointer
"""
"""The functions of compiled_path.c: result, name, parameters."""
OF_RD_KAFKA = """
    pointer  rd_kafka_queue_new             pointer
    void     rd_kafka_queue_destroy         pointer
    pointer  rd_kafka_queue_get_partition   pointer text int32
    void     rd_kafka_queue_forward         pointer pointer
    text     rd_kafka_topic_name            pointer
    int32    rd_kafka_message_leader_epoch  pointer
    int64    rd_kafka_message_timestamp     pointer pointer
"""
"""The functions of librdkafka that Python calls, likewise."""


def _declare_functions(library: ctypes.CDLL, signatures: str) -> None:
    """Have ctypes convert the parameters and results of these functions."""
    for signature in signatures.strip().splitlines():
        result, name, *parameters = signature.split()
        function = getattr(library, name)
        function.restype = TYPES[result]
        function.argtypes = tuple(TYPES[parameter] for parameter in parameters)


class Library:
    """The built `compiled_path.c`, and the functions of librdkafka that Python calls."""

    def __init__(self, file: Path) -> None:
        self.path = ctypes.CDLL(str(file))
        self.rd_kafka = ctypes.CDLL(cimpl.__file__)
        _declare_functions(self.path, OF_HOT_PATH)
        _declare_functions(self.rd_kafka, OF_RD_KAFKA)
        missing = self.path.reo_bind(cimpl.__file__.encode())
        if missing is not None:
            raise CompiledPathUnavailable(
                f"{missing.decode()} is not in the librdkafka of confluent-kafka {VERSION[0]}"
            )
        if self.path.reo_batch_size() != ctypes.sizeof(RawBatch):
            raise CompiledPathUnavailable(
                f"{file} was built from another version of compiled_path.c: build it again (make"
                " setup)"
            )


@cache
def load_library() -> Library:
    """The library; CompiledPathUnavailable, with the reason, when it cannot be used."""
    if VERSION not in VERSIONS:
        raise CompiledPathUnavailable(
            "it is not tested with confluent-kafka {} and librdkafka {}".format(*VERSION)
        )
    built = sorted(FOLDER.glob("_compiled_path*.so"))
    if not built:
        raise CompiledPathUnavailable(
            "it was not built: a C compiler was missing (install gcc, then install reo again; in a"
            " checkout run make setup)"
        )
    if len(built) > 1:
        raise CompiledPathUnavailable(
            f"it was built more than once: {', '.join(file.name for file in built)}; delete them,"
            " then build it again (make setup)"
        )
    try:
        return Library(built[0])
    except (OSError, AttributeError) as reason:
        raise CompiledPathUnavailable(str(reason)) from None


def get_rd_kafka_pointer(client: Consumer | Producer) -> int:
    """The `rd_kafka_t *` of a client."""
    pointer = ctypes.c_void_p.from_address(id(client) + OBJECT_HEAD).value
    if pointer is None:
        raise RuntimeError("the client is closed")
    return pointer
