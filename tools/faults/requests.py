"""Parse the header of a Kafka request, which is the same for every API, without its body.

Both sides send frames: four bytes of length, then that many bytes. A request begins with API key,
API version, correlation id and client id (header versions 1 and 2 differ only behind the client
id); a response begins with the correlation id of its request. A proxy needs no more to select "the
next EndTxn of this client".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

API_KEYS = {
    "Produce": 0,
    "Fetch": 1,
    "OffsetFetch": 9,
    "JoinGroup": 11,
    "Heartbeat": 12,
    "SyncGroup": 14,
    "AddPartitionsToTxn": 24,
    "AddOffsetsToTxn": 25,
    "EndTxn": 26,
    "TxnOffsetCommit": 28,
}
"""The APIs that a rule can name, as in Kafka's protocol guide."""
API_NAMES = {key: name for name, key in API_KEYS.items()}
HEADER = struct.Struct(">hhih")
LENGTH = struct.Struct(">i")


@dataclass(frozen=True)
class Request:
    """One request: its header, and the whole frame without the length."""

    api: str
    version: int
    correlation_id: int
    client_id: str
    frame: bytes


def parse_request(frame: bytes) -> Request:
    """The header of a request's frame; an API without a name here gets its number."""
    key, version, correlation_id, length = HEADER.unpack_from(frame)
    client_id = frame[HEADER.size : HEADER.size + max(0, length)].decode(errors="replace")
    return Request(
        API_NAMES.get(key, str(key)),
        version,
        correlation_id,
        client_id,
        frame,
    )


def parse_correlation_id(frame: bytes) -> int:
    """The correlation id of a response's frame."""
    return int(LENGTH.unpack_from(frame)[0])
