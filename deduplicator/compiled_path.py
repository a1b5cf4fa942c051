"""The compiled path: `compiled_path.c` hands the records of an accepted envelope to the producer,
without a Python object for each.

It is used if records go one to one to Kafka topics and no user's function sees them, if the library
was built (`make setup`, the wheel, the image), and if confluent-kafka has a tested version.
Otherwise Python reads the same envelope (`common.envelope.read_records`) and writes the same
records: tests/unit/deduplicator/test_compiled.py, tests/broker/test_forwarding.py.

How it reaches librdkafka: in a client of confluent-kafka, the `rd_kafka_t *` is the first field
after Python's object head; the library is found through the extension module that has loaded it.

ctypes, and no extension module: to build the file needs only a compiler (no headers of Python or of
librdkafka), it works with every version of Python, and each call releases the GIL.
"""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Producer, cimpl

from common import envelope as envelopes
from common.envelope import EnvelopeInvalid
from common.routes import Route, TopicPartition
from common.settings import Settings, destination_kind
from deduplicator.unwrap import build_zero_timestamp_error

VERSIONS = frozenset({("2.16.1", "2.16.0")})
"""The versions of confluent-kafka and of librdkafka with which the compiled path was tested: other
ones may have another object layout, or other structures.
"""
FOLDER = Path(__file__).parent
"""The folder of the library."""
VERSION = (str(confluent_kafka.__version__), str(confluent_kafka.libversion()[0]))
OBJECT_HEAD = object.__basicsize__
INVALID = -1001
ZERO_TIMESTAMP = -1002
"""As in compiled_path.c."""
TYPES: dict[str, Any] = {
    "none": None,
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
    "text": ctypes.c_char_p,
    "pointer": ctypes.c_void_p,
}
SIGNATURES = """
    text   reo_needed            int64
    none   reo_bind              int64 pointer
    int64  reo_envelope_version
    int64  reo_check             text int64
    int64  reo_forward           pointer text int32 text int64 int64 int64 int64 pointer pointer
"""
"""The functions of compiled_path.c: result, name, parameters."""


class CompiledPathUnavailable(Exception):
    """Why the compiled path cannot be used."""


@dataclass(frozen=True, slots=True)
class Forwarded:
    """What became of the records that were to be handed to a producer."""

    count: int
    """How many the producer accepted."""
    last_source_offset: int
    """Of the last one that it accepted; without one, the offset that they had to be above."""
    is_queue_full: bool
    """Whether there are more, and the producer's queue is full."""


def find_disabled_reason(settings: Settings, routes: Iterable[Route]) -> str | None:
    """The reason why the compiled path is not used for these routes; None when it is used."""
    if not settings.deduplicator.compiled:
        return "deduplicator.compiled is no"
    if settings.filter.function or settings.provenance.header:
        return "filter.function and provenance.header are applied in Python"
    if destination_kind.is_outside_kafka(settings):
        return "the destination is not a topic"
    if not all(route.is_one_to_one for route in routes):
        return "a route is not one to one"
    try:
        load_library()
    except CompiledPathUnavailable as reason:
        return str(reason)
    return None


def forward(
    producer: Producer,
    tp: TopicPartition,
    value: bytes,
    above: int,
    below: int,
    zero_timestamp_ms: int | None,
) -> Forwarded:
    """Hand the records of an envelope whose source offsets are above `above` and below `below` to a
    producer, for `tp`, in order; `zero_timestamp_ms` replaces timestamp 0, which librdkafka takes
    for "now". Their values are not copied: whoever calls this keeps `value` until each record is
    delivered or purged.

    EnvelopeInvalid, and nothing is handed over, when the value is not an envelope; RecordRefused at
    a timestamp 0 without a replacement; KafkaException when the producer refuses a record for
    another reason than a full queue. Records before the one of the last two are handed over.
    """
    error, position = ctypes.c_int32(), ctypes.c_int64()
    count = load_library().reo_forward(
        get_rd_kafka_pointer(producer),
        tp.topic.encode(),
        tp.partition,
        value,
        len(value),
        above,
        below,
        zero_timestamp_ms or 0,
        ctypes.byref(error),
        ctypes.byref(position),
    )
    if error.value not in (0, KafkaError._QUEUE_FULL):
        raise _translate_error(error.value, tp, value, position.value)
    return Forwarded(count, position.value, error.value != 0)


def _translate_error(code: int, tp: TopicPartition, value: bytes, position: int) -> Exception:
    if code == INVALID:
        try:
            envelopes.read_records(value, envelopes.parse_head(value))
        except EnvelopeInvalid as reason:
            return reason
        return EnvelopeInvalid("compiled_path.c cannot read the envelope")
    if code == ZERO_TIMESTAMP:
        return build_zero_timestamp_error(envelopes.parse_head(value).source_partition, position)
    return KafkaException(KafkaError(code, f"a record for {tp} was not accepted"))


@cache
def load_library() -> ctypes.CDLL:
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
        return _bind_library(built[0])
    except (OSError, AttributeError) as reason:
        raise CompiledPathUnavailable(str(reason)) from None


def get_rd_kafka_pointer(client: Producer) -> int:
    """The `rd_kafka_t *` of a client; RuntimeError when it is closed."""
    pointer = ctypes.c_void_p.from_address(id(client) + OBJECT_HEAD).value
    if pointer is None:
        raise RuntimeError("the client is closed")
    return pointer


def _bind_library(file: Path) -> ctypes.CDLL:
    """The built library, bound to the librdkafka that confluent-kafka has loaded; OSError or
    AttributeError when it is none.
    """
    library = ctypes.CDLL(str(file))
    for signature in SIGNATURES.strip().splitlines():
        result, name, *parameters = signature.split()
        function = getattr(library, name)
        function.restype = TYPES[result]
        function.argtypes = tuple(TYPES[parameter] for parameter in parameters)
    if library.reo_envelope_version() != envelopes.VERSION:
        raise CompiledPathUnavailable(
            f"{file} was built from another version of compiled_path.c: build it again (make setup)"
        )
    loaded = ctypes.CDLL(cimpl.__file__, mode=os.RTLD_NOLOAD)
    for number in itertools.count():
        name = library.reo_needed(number)
        if name is None:
            break
        function = getattr(loaded, name.decode(), None)
        if function is None:
            raise CompiledPathUnavailable(
                f"{name.decode()} is not in the librdkafka of confluent-kafka {VERSION[0]}"
            )
        library.reo_bind(number, ctypes.cast(function, ctypes.c_void_p))
    return library
