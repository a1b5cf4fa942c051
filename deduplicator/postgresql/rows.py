"""Records as rows of a table: its columns, and their encoding in COPY's binary format, written by
hand.

A row is the record with its source partition and offset. Nothing is changed: keys, values and
header values are bytea; header names are text, repeated and in the order of their values, with NULL
for a header without a value; a record without headers has NULL for both. Timestamps are Kafka's
milliseconds, since PostgreSQL's own type cannot represent all of them.

By hand, because a driver would look up the encoding of each value of each record: that takes longer
than everything else that stage two does with a record. PostgreSQL's documentation describes the
format (COPY, "Binary Format"; arrays: array_send).
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from common.records import Headers
from deduplicator.own_destination import StoredRecord

COLUMNS = {
    "partition": "integer",
    "source_offset": "bigint",
    "timestamp_ms": "bigint",
    "key": "bytea",
    "value": "bytea",
    "header_names": "text[]",
    "header_values": "bytea[]",
}
"""In the order of a row."""
PRIMARY_KEY = ("partition", "source_offset")
BEGIN, END = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
NULL = b"\xff\xff\xff\xff"
NO_HEADERS = NULL + NULL
_row_start = Struct(">hiiiqiq").pack
_length = Struct(">i").pack
_array = Struct(">iiiii").pack
TEXT, BYTEA = 25, 17
"""Object identifiers of built-in types (pg_type.dat)."""


def encode_rows(records: Sequence[StoredRecord]) -> bytes:
    """Rows in COPY's binary format, without its header and trailer."""
    parts: list[bytes] = []
    add = parts.append
    for _, partition, _, _, source_offset, key, value, headers, timestamp_ms in records:
        add(_row_start(7, 4, partition, 8, source_offset, 8, timestamp_ms))
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
        add(_encode_headers(headers) if headers else NO_HEADERS)
    return b"".join(parts)


def _encode_headers(headers: Headers) -> bytes:
    names = [name.encode() for name, _ in headers]
    values = [value for _, value in headers]
    return _encode_array(TEXT, names) + _encode_array(BYTEA, values)


def _encode_array(type_id: int, elements: Sequence[bytes | None]) -> bytes:
    """An array with one dimension that begins at 1."""
    content = b"".join(
        [NULL if element is None else _length(len(element)) + element for element in elements]
    )
    array = _array(1, None in elements, type_id, len(elements), 1) + content
    return _length(len(array)) + array
