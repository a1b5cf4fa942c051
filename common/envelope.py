"""The envelope: the value of an intermediate record. It has consecutive records of one source
partition, and says which stretch of the source it covers: every visible record above `after` and up
to `through` is in it, or is left out by `filter.sql`. Below the last stable offset a source only
shrinks, so an envelope stays true, whoever wrote it and however often it arrives: that is what the
rule of stage two rests on (`deduplicator.rule`).

The intermediate record has no key and no headers. Its value is a head of 54 bytes, integers in
network byte order (big-endian) and signed, but for the version and the flags:

    byte  bytes  field
       0      1  version: 2 (1 was the origin header of earlier versions of reo)
       1      1  flags, 0 or 1: `filter.sql` has left records of the stretch out
       2      8  identity of the source topic (`compute_identity`)
      10      8  epoch of the run that wrote it
      18      4  source partition
      22      8  after: -1 or a source offset
      30      8  through: a source offset, at least `after`, and below 2^63 - 1
      38      8  base timestamp, ms since 1970 UTC: that of the first record, or 0
      46      4  number of records
      50      4  position of the last record in the value, or 0

and then the records, each as in Kafka's message format v2 (KIP-98; Kafka's documentation, "Record";
varints are zigzag-encoded):

    varint     length of what follows
    int8       attributes, which Kafka does not use: the kind of the timestamp, and 1 (0 none,
               1 create time, 2 log-append time)
    varint     timestamp, less the base timestamp
    varint     source offset, less `after`
    varint     length of the key, or -1 for null; the key
    varint     length of the value, or -1 for null; the value
    varint     number of headers; of each, varint length and name (UTF-8 without NUL: no other one
               can be copied), varint length (or -1) and value

An envelope without records says that there is nothing to copy in its stretch. One whose stretch is
empty, too (`after` = `through`), says only that a run with its epoch has begun.

Stage one's sink writes envelopes (`replicator/spark/sink/`), and stage two's C function forwards
their records (`deduplicator/compiled_path.c`). This module is the third implementation: it shares
no code with these, writes empty envelopes, reads records where Python needs them one by one, and is
what the other two are compared with. Whoever changes the layout changes all three, and the tests'
`tools/envelope_encoder.py`. Every field is checked: otherwise anybody who can write to the
intermediate topic could move a frontier.
"""

from __future__ import annotations

import hashlib
import struct
from typing import NamedTuple

VERSION = 2
OFFSET_MAX = 2**63 - 1
"""The highest end of a partition: the offset of its last record is below it."""
HEAD = struct.Struct(">BB8sqiqqqii")
TIMESTAMP_KINDS = range(-1, 2)
"""-1 none, 0 create time, 1 log-append time (Spark's `timestampType`)."""
Header = tuple[bytes, bytes | None]


class EnvelopeInvalid(ValueError):
    """Why a value is not an envelope."""


class Head(NamedTuple):
    """What an envelope says of itself."""

    source_identity: str
    """16 hexadecimal digits."""
    epoch: int
    source_partition: int
    after: int
    through: int
    base_timestamp_ms: int = 0
    record_count: int = 0
    last_position: int = 0
    has_left_out: bool = False


class EnvelopeRecord(NamedTuple):
    """A source record in an envelope."""

    source_offset: int
    timestamp_ms: int
    timestamp_kind: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


def compute_identity(cluster_id: str, topic: str, topic_id: str) -> str:
    """The short identity of a topic: equal only for the same topic, with the same creation, of the
    same cluster.

    Brokers before 2.8 have no topic ids (KIP-516): there the name stands in, and a recreated topic
    is not recognised.
    """
    return hashlib.sha256(f"{cluster_id}/{topic_id or topic}".encode()).hexdigest()[:16]


def encode_empty(head: Head) -> bytes:
    """An envelope without records; ValueError when a field does not fit."""
    try:
        value = HEAD.pack(
            *(VERSION, head.has_left_out, bytes.fromhex(head.source_identity), head.epoch),
            *(head.source_partition, head.after, head.through, 0, 0, 0),
        )
    except struct.error as reason:
        raise ValueError(str(reason)) from None
    if parse_head(value) != head:
        raise ValueError(f"this is no head of an empty envelope: {head}")
    return value


def parse_head(value: bytes | bytearray | None) -> Head:
    """The head of an envelope, without its records; EnvelopeInvalid when it has none."""
    if not value:
        raise EnvelopeInvalid("it has no value")
    if value[0] != VERSION:
        raise EnvelopeInvalid(
            f"the envelope's version is {value[0]}, and this version of reo reads {VERSION}: both"
            " stages must run the same version of reo"
        )
    if len(value) < HEAD.size:
        raise EnvelopeInvalid(f"an envelope has at least {HEAD.size} bytes, not {len(value)}")
    _, flags, identity, epoch, partition, after, through, base_ms, count, last = HEAD.unpack_from(
        value
    )
    has_valid_position = HEAD.size <= last < len(value) if count else last == 0
    if (
        flags not in (0, 1)
        or epoch < 0
        or partition < 0
        or not -1 <= after <= through < OFFSET_MAX
        or count < 0
        or not has_valid_position
        or (count == 0 and (len(value), base_ms) != (HEAD.size, 0))
    ):
        raise EnvelopeInvalid(
            f"a field of the envelope is out of range: flags {flags}, epoch {epoch}, source"
            f" partition {partition}, after {after}, through {through}, base timestamp {base_ms},"
            f" {count} records, the last one at position {last} of {len(value)}"
        )
    return Head(identity.hex(), epoch, partition, after, through, base_ms, count, last, flags == 1)


def read_records(value: bytes, head: Head) -> list[EnvelopeRecord]:
    """The records of an envelope; EnvelopeInvalid unless they are what its head says."""
    records: list[EnvelopeRecord] = []
    position, last_position, last_offset = HEAD.size, 0, head.after
    while position < len(value):
        last_position = position
        record, position = _read_record(value, position, head)
        if not last_offset < record.source_offset <= head.through:
            raise EnvelopeInvalid(
                f"the record at position {last_position} has source offset {record.source_offset},"
                f" which is not above {last_offset} and up to {head.through}"
            )
        last_offset = record.source_offset
        records.append(record)
    if (len(records), last_position) != (head.record_count, head.last_position):
        raise EnvelopeInvalid(
            f"the envelope has {len(records)} records, the last one at position {last_position}; by"
            f" its head these are {head.record_count} and {head.last_position}"
        )
    if records and records[0].timestamp_ms != head.base_timestamp_ms:
        raise EnvelopeInvalid("the base timestamp is not that of the first record")
    return records


def read_last_record(value: bytes, head: Head) -> EnvelopeRecord:
    """The last record of an envelope that has records; EnvelopeInvalid when it is damaged."""
    record, end = _read_record(value, head.last_position, head)
    if end != len(value) or not head.after < record.source_offset <= head.through:
        raise EnvelopeInvalid(f"at position {head.last_position} there is not the last record")
    return record


def is_header_name(name: bytes) -> bool:
    """Whether every client can carry this name: it is UTF-8, and has no NUL."""
    try:
        return "\0" not in name.decode()
    except UnicodeDecodeError:
        return False


def _read_varint(value: bytes, position: int, end: int) -> tuple[int, int]:
    """A number, and the position after it."""
    if position < end and value[position] < 0x80:  # most are short
        return (value[position] >> 1) ^ -(value[position] & 1), position + 1
    rest = shift = 0
    while True:
        if position >= end or shift > 63:
            raise EnvelopeInvalid(f"there is no number at position {position}")
        byte = value[position]
        position += 1
        rest |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if rest >= 2**64:
        raise EnvelopeInvalid(f"the number before position {position} has more than 64 bits")
    return (rest >> 1) ^ -(rest & 1), position


def _read_bytes(value: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = _read_varint(value, position, end)
    if length == -1:
        return None, position
    if not 0 <= length <= end - position:
        raise EnvelopeInvalid(f"a length at position {position} is out of range: {length}")
    return value[position : position + length], position + length


def _read_record(value: bytes, begin: int, head: Head) -> tuple[EnvelopeRecord, int]:
    """A record, and the position after it."""
    length, position = _read_varint(value, begin, len(value))
    end = position + length
    if length < 1 or end > len(value):
        raise EnvelopeInvalid(f"the record at position {begin} has an impossible length: {length}")
    kind = value[position] - 1
    if kind not in TIMESTAMP_KINDS:
        raise EnvelopeInvalid(f"the record at position {begin} has no kind of timestamp: {kind}")
    timestamp_delta, position = _read_varint(value, position + 1, end)
    offset_delta, position = _read_varint(value, position, end)
    key, position = _read_bytes(value, position, end)
    content, position = _read_bytes(value, position, end)
    header_count, position = _read_varint(value, position, end)
    # each header takes two bytes or more: a wrong number ends here, not in a loop without an end
    if not 0 <= header_count <= (end - position) // 2:
        raise EnvelopeInvalid(f"the record at position {begin} cannot have {header_count} headers")
    headers: list[Header] = []
    for _ in range(header_count):
        name, position = _read_bytes(value, position, end)
        own, position = _read_bytes(value, position, end)
        if name is None or not is_header_name(name):
            raise EnvelopeInvalid(
                f"a header of the record at position {begin} has the name {name!r}"
            )
        headers.append((name, own))
    if position != end:
        raise EnvelopeInvalid(f"the record at position {begin} ends at {position}, not at {end}")
    timestamp_ms = head.base_timestamp_ms + timestamp_delta
    source_offset = head.after + offset_delta
    if not -(2**63) <= timestamp_ms < 2**63:
        raise EnvelopeInvalid(f"the timestamp of the record at position {begin} is out of range")
    return (
        EnvelopeRecord(source_offset, timestamp_ms, kind, key, content, tuple(headers)),
        end,
    )
