"""The two formats that reo writes beside the user's own data: the envelope and the frontier's
metadata string.

Names and lengths are the code's; what each field means is said here, and a field that has no
meaning here, or one too many, is an error.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

import orjson

from common import frontier
from common.envelope import HEAD

ENVELOPE: Mapping[str, tuple[str, str]] = {
    "version": ("B", "2"),
    "flags": ("B", "1 when `filter.sql` has left records out between `after` and `through`, or 0"),
    "identity": (
        "8s",
        (
            "of the source topic: the first 8 bytes of SHA-256 of cluster id and topic id;"
            " elsewhere these are 16 hexadecimal digits"
        ),
    ),
    "epoch": ("q", "of the run that wrote it"),
    "partition": ("i", "of the source"),
    "after": ("q", "-1 or a source offset: every visible record above it"),
    "through": ("q", "and up to this source offset is in the envelope, or left out"),
    "base timestamp": ("q", "of the first record, ms since 1970 UTC; 0 without records"),
    "records": ("i", "how many follow"),
    "last position": ("i", "of the last record, in bytes from the beginning; 0 without records"),
}
"""By field, in order: its code in Python's `struct`, and its meaning."""
FRONTIER = {
    "v": "version of this format",
    "f": (
        "frontier: up to this source offset everything is copied, or nothing is to be; -1 for none"
    ),
    "e": "epoch of the newest run that was seen",
    "g": (
        "open gap: source offsets above the frontier and up to this one are missing, although a"
        " later envelope has come; or null"
    ),
    "i": "identity of the source topic, as in the envelope",
    "c": "partitions that the source had when the copy began",
    "t": "topic id of the destination",
    "d": "destination offset of the last record whose delivery is known",
    "n": "records sent after it; both are -1 for a route that is not one to one",
    "r": (
        "the last source record that was accepted: its offset, and a checksum of its key, value,"
        " headers and timestamp, and whether filter.sql may have left records out between it and"
        " the frontier; or null"
    ),
    "w": (
        "checksum of the last record that `d` and `n` count, as it was written, and `+` if"
        " compaction keeps it; or null"
    ),
    "k": "`d` is the offset of a record of this copy; or null",
    "mv": (
        "only of a topic that has moved (`reo cutover run`): when, in ms since 1970 UTC, who ran"
        " it, and the destination offset after what was copied"
    ),
}
EXAMPLE = frontier.Frontier(
    source_offset=41,
    epoch=1_790_000_123_456,
    source_identity="9f86d081884c7d65",
    source_partitions=4,
    destination_topic_id="q7aN1Y0hQ2aD9v1m4bC3xA",
    destination_known=39,
    sent=2,
    gap=57,
    last_record=frontier.LastRecord(41, "5f1d7a84db00d2fc"),
    last_written="5f1d7a84db00d2fc+",
    is_known_written=True,
    move=frontier.Move(1_790_000_223_456, "ann@host", 42),
)


def envelope_table() -> str:
    """The bytes of an envelope's head."""
    if ">" + "".join(code for code, _ in ENVELOPE.values()) != HEAD.format:
        raise ValueError(
            f"the envelope's head is {HEAD.format}, and these fields are described:"
            f" {', '.join(ENVELOPE)}"
        )
    lines, begin = ["| byte | bytes | field | |", "|---:|---:|---|---|"], 0
    for name, (code, meaning) in ENVELOPE.items():
        length = struct.calcsize(f">{code}")
        lines.append(f"| {begin} | {length} | {name} | {meaning} |")
        begin += length
    return "\n".join(lines)


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


def _kind(value: object) -> str:
    if isinstance(value, list):
        return f"list of {', '.join(map(_kind, value))}"
    if value is True:
        return "true"
    return {int: "number", str: "text", bool: "true or false"}[type(value)]
