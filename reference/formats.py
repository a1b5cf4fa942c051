"""The three formats that reo writes beside the user's own data: the origin header, the read-up-to
header and the frontier's metadata string.

Names and ranges are the code's; what each field means is said here, and a field that has no meaning
here, or one too many, is an error.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import get_args

import msgspec
import orjson

from common import frontier
from common.origin import LAYOUT
from common.read_up_to_record import ReadUpTo

ORIGIN: Mapping[str, tuple[str, str]] = {
    "version": ("B", "1"),
    "identity": (
        "8s",
        (
            "of the source topic: the first 8 bytes of SHA-256 of cluster id and topic id;"
            " elsewhere these are 16 hexadecimal digits"
        ),
    ),
    "epoch": ("q", "of the run that wrote the record"),
    "partition": ("i", "source partition"),
    "kind": ("b", "of the timestamp: -1 none, 0 create time, 1 log-append time"),
    "offset": ("q", "source offset"),
    "timestamp": ("q", "source timestamp, ms since 1970 UTC"),
    "attempt": ("q", "which attempt of a Spark task wrote the record: a hash, below 2^63"),
    "sequence": ("q", "in the task attempt: 0, 1, 2 …"),
}
"""By field, in order: its code in Python's `struct`, and its meaning."""
READ_UP_TO = {
    "p": "source partition",
    "o": "the last source offset of which there is nothing to copy",
    "f": "the frontier that it follows, -1 for none",
    "e": "epoch of the run that wrote the record",
    "i": "identity of the source topic: 16 hexadecimal digits",
    "x": "whether filter.sql may have left records out there",
}
FRONTIER = {
    "v": "version of this format",
    "f": (
        "frontier: up to this source offset everything is copied, or nothing is to be; -1 for none"
    ),
    "e": "epoch of the last run that was seen",
    "l": "link: source offset, attempt and sequence that were covered last in this epoch, or null",
    "h": (
        "open hole of this epoch: from which source offset on no batch may begin, and the highest"
        " one that was dropped, or null"
    ),
    "i": "identity of the source topic, as in the origin",
    "c": "partitions that the source had when the copy began",
    "t": "topic id of the destination",
    "d": "destination offset of the last record whose delivery is known",
    "n": "records sent after it; both are -1 for a route that is not one to one",
    "r": (
        "the last source record that was accepted: its offset, and a checksum of its key, value,"
        " headers and timestamp, and whether filter.sql may have left records out between it and"
        " the frontier; or null"
    ),
    "w": "checksum of the last record that `d` and `n` count, as it was written; or null",
    "p": (
        "leader epoch of the intermediate partition up to which no unread record can have been"
        " lost; or null"
    ),
    "m": "topic id of the intermediate topic that the committed offset is in; or null",
    "k": "`d` is the offset of a record of this copy; or null",
}
EXAMPLE = frontier.Frontier(
    frontier.RuleState(
        41, 1_790_000_000_000, frontier.Link(41, 1_790_000_000_123, 7), frontier.Hole(43, 57)
    ),
    "9f86d081884c7d65",
    4,
    "q7aN1Y0hQ2aD9v1m4bC3xA",
    39,
    2,
    frontier.LastRecord(41, "5f1d7a84db00d2fc"),
    "5f1d7a84db00d2fc",
    3,
    "Zr2c0u4uT3W1pF5y8n7bQg",
    is_known_written=True,
)


def origin_table() -> str:
    """The bytes of the origin header."""
    if ">" + "".join(code for code, _ in ORIGIN.values()) != LAYOUT.format:
        raise ValueError(
            f"the origin's layout is {LAYOUT.format}, and these fields are described:"
            f" {', '.join(ORIGIN)}"
        )
    lines, begin = ["| byte | bytes | field | |", "|---:|---:|---|---|"], 0
    for name, (code, meaning) in ORIGIN.items():
        length = struct.calcsize(f">{code}")
        lines.append(f"| {begin} | {length} | {name} | {meaning} |")
        begin += length
    return "\n".join(lines)


def read_up_to_table() -> str:
    """The fields of the read-up-to header."""
    return _table(READ_UP_TO, _ranges(ReadUpTo))


def frontier_table() -> str:
    """The fields of the frontier, and one as it is written."""
    kinds = {key: _kind(value) for key, value in orjson.loads(EXAMPLE.encode()).items()}
    return f"{_table(FRONTIER, kinds)}\n\n```json\n{EXAMPLE.encode()}\n```"


def _table(meanings: Mapping[str, str], kinds: Mapping[str, str]) -> str:
    if set(meanings) != set(kinds):
        raise ValueError(
            "reference.formats and the code disagree about the field(s)"
            f" {sorted(set(meanings) ^ set(kinds))}"
        )
    return "\n".join(
        [
            "| field | JSON | meaning |",
            "|---|---|---|",
            *(f"| `{name}` | {kind} | {meanings[name]} |" for name, kind in kinds.items()),
        ]
    )


def _ranges(of: type[ReadUpTo]) -> dict[str, str]:
    return {field.encode_name: _range(field.type) for field in msgspec.structs.fields(of)}


def _range(annotated: object) -> str:
    """As msgspec checks it."""
    if annotated in (str, bool):
        return "text" if annotated is str else "true or false"
    bounds = get_args(annotated)[1]
    words = {-(2**63 - 1): "-(2^63 - 1)", 2**63 - 1: "2^63 - 1"}
    return f"{words.get(bounds.ge, bounds.ge)} to {words.get(bounds.le, bounds.le)}"


def _kind(value: object) -> str:
    if isinstance(value, list):
        return f"list of {', '.join(map(_kind, value))}"
    if value is True:
        return "true"
    return {int: "number", str: "text", bool: "true or false"}[type(value)]
