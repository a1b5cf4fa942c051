"""Envelopes with records, for tests, the simulator and the fuzzer: the service has only its sink in
Java to write them (`replicator/spark/sink/`), which is compared with this.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from common.envelope import (
    HEAD,
    TIMESTAMP_KINDS,
    VERSION,
    EnvelopeRecord,
    Head,
    is_header_name,
    parse_head,
)


def encode(head: Head, records: Iterable[EnvelopeRecord] = ()) -> bytes:
    """An envelope with these records; the base timestamp, the number and the position in `head` are
    replaced. ValueError when a field does not fit.
    """
    value = bytearray(HEAD.size)
    base_timestamp_ms = count = last_position = 0
    for record in records:
        last_position = len(value)
        if count == 0:
            base_timestamp_ms = record.timestamp_ms
        value += _encode_record(record, head.after, base_timestamp_ms)
        count += 1
    identity = bytes.fromhex(head.source_identity)
    if len(identity) != 8:
        raise ValueError(f"an identity has 16 hexadecimal digits: {head.source_identity!r}")
    try:
        value[: HEAD.size] = HEAD.pack(
            *(VERSION, int(head.has_left_out), identity, head.epoch, head.source_partition),
            *(head.after, head.through, base_timestamp_ms, count, last_position),
        )
    except struct.error as reason:
        raise ValueError(str(reason)) from None
    parse_head(value)
    return bytes(value)


def _encode_record(record: EnvelopeRecord, after: int, base_timestamp_ms: int) -> bytes:
    if record.timestamp_kind not in TIMESTAMP_KINDS:
        raise ValueError(f"no kind of timestamp: {record.timestamp_kind}")
    body = bytearray((record.timestamp_kind + 1,))
    body += _encode_varint(record.timestamp_ms - base_timestamp_ms)
    body += _encode_varint(record.source_offset - after)
    body += _encode_bytes(record.key)
    body += _encode_bytes(record.value)
    body += _encode_varint(len(record.headers))
    for name, own in record.headers:
        if not is_header_name(name):
            raise ValueError(f"no name of a header: {name!r}")
        body += _encode_bytes(name)
        body += _encode_bytes(own)
    return _encode_varint(len(body)) + bytes(body)


def _encode_bytes(content: bytes | None) -> bytes:
    return _encode_varint(-1) if content is None else _encode_varint(len(content)) + content


def _encode_varint(number: int) -> bytes:
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{number} does not fit into 64 bits")
    rest = (number << 1) ^ (number >> 63)
    rest &= 2**64 - 1
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)
