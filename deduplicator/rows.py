"""Records as rows of a table: its columns, and COPY's binary form of them, made by hand.

A row is the record with its place at the source. Nothing is changed: keys, values and headers' values are bytea; names of headers are text, repeated and in
order beside their values, with NULL for a header without a value; a record without headers has NULL for both. Timestamps are Kafka's milliseconds, since
PostgreSQL's own type has no room for all of them.

By hand, because for each record a driver would look up how each of its values is written: that takes longer than all else that stage two does with it. The
form is in PostgreSQL's documentation (COPY, "Binary Format"; arrays: array_send).
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from common.records import Headers
from deduplicator.unwrap import Record

COLUMNS = {"partition": "integer", "source_offset": "bigint", "timestamp_ms": "bigint", "key": "bytea", "value": "bytea", "header_names": "text[]",
           "header_values": "bytea[]"}
"""In the order of a row."""
PRIMARY_KEY = ("partition", "source_offset")
BEGIN, END = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
NULL = b"\xff\xff\xff\xff"
NO_HEADERS = NULL + NULL
_place = Struct(">hiiiqiq").pack
_length = Struct(">i").pack
_array = Struct(">iiiii").pack
TEXT, BYTEA = 25, 17
"""Object identifiers of built-in types (pg_type.dat)."""


def packed(partition: int, records: Sequence[Record], source_offsets: Sequence[int]) -> bytes:
    """Rows in COPY's binary form, without its beginning and end."""
    parts: list[bytes] = []
    add = parts.append
    for (key, value, headers, timestamp_ms), source_offset in zip(records, source_offsets, strict=True):
        add(_place(7, 4, partition, 8, source_offset, 8, timestamp_ms))
        if key is None:
            add(NULL)
        else:
            add(_length(len(key)))
            add(key)
        if value is None:
            add(NULL)
        else:
            add(_length(len(value)))
            add(value)
        add(_headers(headers) if headers else NO_HEADERS)
    return b"".join(parts)


def _headers(headers: Headers) -> bytes:
    names = [name.encode() for name, _ in headers]
    values = [value for _, value in headers]
    return _field(TEXT, names) + _field(BYTEA, values)


def _field(kind: int, elements: Sequence[bytes | None]) -> bytes:
    """An array with one dimension that begins at 1."""
    content = b"".join([NULL if element is None else _length(len(element)) + element for element in elements])
    array = _array(1, None in elements, kind, len(elements), 1) + content
    return _length(len(array)) + array
