"""The origin header, written by stage one and read by stage two: its layout and its parser.

One header, last, named `__origin`. Its value is 54 bytes, integers in network byte order
(big-endian), signed but for the version:

    byte  bytes  field
       0      1  version: 1
       1      8  identity of the source topic (`compute_identity`)
       9      8  epoch of the run that wrote the record
      17      4  source partition
      21      1  kind of the timestamp: -1 none, 0 create time, 1 log-append time (Spark's
              `timestampType`)
      22      8  source offset
      30      8  source timestamp, ms since 1970 UTC
      38      8  attempt: which attempt of a Spark task wrote the record; a hash of Spark's batch
              timestamp and of the task's name (`replicator.wrap`)
      46      8  sequence in the task attempt: 0, 1, 2 …

Stage one builds it inside Spark (`replicator.wrap`), from `encode_fixed_part` and casts. It is
parsed here, and by the compiled path (`deduplicator/compiled_path.c`): whoever changes the layout
changes these three. A user's header of the same name is not the last
one, and is copied. Every field is checked: otherwise anybody who can write to the intermediate
topic could move a frontier.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

HEADER = "__origin"
VERSION = 1
OFFSET_MAX = 2**63 - 1
Natural = Annotated[int, Meta(ge=0, le=OFFSET_MAX)]
LAYOUT = struct.Struct(">B8sqibqqqq")
FIXED = struct.Struct(">B8sq")
"""Its beginning, the same for all records of a topic in a run."""
_unpack = LAYOUT.unpack


class Origin(Struct, frozen=True, gc=False):
    """One origin header."""

    source_partition: int
    source_offset: int
    timestamp_ms: int
    timestamp_kind: int
    epoch: int
    attempt: int
    sequence: int
    source_identity: str
    """16 hexadecimal digits."""


def parse(value: bytes) -> Origin:
    """The origin in a header's value; ValueError, with the reason, when it is invalid; TypeError
    without a value.
    """
    if len(value) != LAYOUT.size or value[0] != VERSION:
        raise ValueError(_describe_unreadable(value))
    _, identity, epoch, partition, kind, offset, timestamp_ms, attempt, sequence = _unpack(value)
    if (
        epoch < 0
        or partition < 0
        or offset < 0
        or attempt < 0
        or sequence < 0
        or not -1 <= kind <= 1
        or timestamp_ms < -OFFSET_MAX
    ):
        raise ValueError(
            f"a number of the origin is out of range: epoch {epoch}, source partition {partition},"
            f" timestamp kind {kind}, source offset {offset}, timestamp {timestamp_ms},"
            f" attempt {attempt}, sequence {sequence}"
        )
    return Origin(partition, offset, timestamp_ms, kind, epoch, attempt, sequence, identity.hex())


def parse_all(values: Sequence[bytes | None]) -> list[Origin]:
    """The origins of many headers, without Python code for each one. ValueError or TypeError when
    one is invalid; `parse` tells which one, and why.
    """
    if set(map(len, values)) - {LAYOUT.size}:  # type: ignore[arg-type]  # the TypeError
        raise ValueError("a header is longer or shorter than an origin")
    unpacked = LAYOUT.iter_unpack(b"".join(values))  # type: ignore[arg-type]
    versions, identities, epochs, partitions, kinds, offsets, timestamps, batches, sequences = zip(
        *unpacked, strict=True
    )
    if (
        set(versions) != {VERSION}
        or min(map(min, (epochs, partitions, offsets, batches, sequences))) < 0
        or min(kinds) < -1
        or max(kinds) > 1
        or min(timestamps) < -OFFSET_MAX
    ):
        raise ValueError("a number of an origin is out of range")
    return list(
        map(
            Origin,
            partitions,
            offsets,
            timestamps,
            kinds,
            epochs,
            batches,
            sequences,
            map(bytes.hex, identities),
        )
    )


def _describe_unreadable(value: bytes) -> str:
    if not value or value[0] == VERSION:
        return f"the origin has {len(value)} bytes, not {LAYOUT.size}"
    return (
        f"the origin's version is {value[0]}, and this version of reo reads {VERSION}: both stages"
        " must run the same version of reo, and an intermediate topic is read by the version that"
        " wrote it"
    )


def encode(origin: Origin) -> bytes:
    """The header's value, as stage one writes it; ValueError when a field does not fit."""
    try:
        return LAYOUT.pack(
            VERSION,
            _encode_identity(origin.source_identity),
            origin.epoch,
            origin.source_partition,
            origin.timestamp_kind,
            origin.source_offset,
            origin.timestamp_ms,
            origin.attempt,
            origin.sequence,
        )
    except struct.error as reason:
        raise ValueError(str(reason)) from None


def encode_fixed_part(source_identity: str, epoch: int) -> bytes:
    """The first bytes of every origin of a topic in a run."""
    return FIXED.pack(VERSION, _encode_identity(source_identity), epoch)


def _encode_identity(source_identity: str) -> bytes:
    decoded = bytes.fromhex(source_identity)
    if len(decoded) != 8:
        raise ValueError(f"an identity has 16 hexadecimal digits: {source_identity!r}")
    return decoded


def compute_identity(cluster_id: str, topic: str, topic_id: str) -> str:
    """The short identity of a topic: equal only for the same topic, with the same creation, of the
    same cluster.

    Brokers before 2.8 have no topic ids (KIP-516): there the name stands in, and a recreated topic
    is not recognised.
    """
    return hashlib.sha256(f"{cluster_id}/{topic_id or topic}".encode()).hexdigest()[:16]
