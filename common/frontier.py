"""The frontier: the whole state of reo, as the metadata string of the consumer group's committed
offset.

It is written by `send_offsets_to_transaction`, so it is atomic with the output, and read by
`Consumer.committed`. Stage two writes it, and stage one reads it; while no service copies the
topic, `reo recover` and `reo cutover` write it too. A partition's frontier has

- how far the source is copied, and in which epoch (the state of `deduplicator.rule`),
- what was copied: the identity of the source topic, and how many partitions it had at the start,
- which history was copied: the offset and a checksum of the last accepted source record, with which
  the source is compared before each run (`replicator.runs.last_record_check`),
- the position in the output: the destination topic's id, the offset of the last record whose
  delivery is known, how many were sent after it, and a checksum of the last of them. The check at
  the start compares these with the data (`deduplicator.frontiers.frontier_check`).

The string is JSON with short keys and a version; brokers keep 4,096 bytes by default
(`offset.metadata.max.bytes`), and this needs about 250. Version 1, of the time when an intermediate
record had one source record, is still read: the next commit is of version 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

import orjson

from common.errors import MoveRefused
from common.routes import TopicPartition

VERSION = 2
READABLE_VERSIONS = (1, 2)
BYTES_MAX = 4095
DECODED_MAX = 16_384
"""Frontiers that are kept decoded: the commits of quiet partitions are read again and again."""
TIME_MS_END = 253_402_300_800_000
"""The year 10000, which no calendar of Python's has."""
KEPT = "+"
"""After the checksum of a written record with a key and a value: compaction keeps the newest one of
each key.
"""


class Move(NamedTuple):
    """That a topic has moved to the destination (`reo cutover run`): the copy of the partition ends
    with its last record. No service goes on from such a frontier.
    """

    at_ms: int
    """When, in milliseconds since 1970 UTC."""
    by: str
    """Who ran the command: user and host."""
    destination_end: int
    """The destination offset after everything that was copied: what is there belongs to others."""


class LastRecord(NamedTuple):
    """The last source record that was accepted: a source that no longer has it has lost records."""

    source_offset: int
    checksum: str
    """Of key, value, headers and timestamp (`common.records.compute_checksum`)."""
    left_out: bool = False
    """Whether `filter.sql` may have left records out from here to the frontier."""


@dataclass(frozen=True, slots=True)
class Frontier:
    """One partition's commit metadata."""

    source_offset: int
    """Everything up to this source offset is copied; -1 before the first record."""
    epoch: int
    """Of the newest run that stage two has seen."""
    source_identity: str
    source_partitions: int
    """How many the source had when the copy began; a later one is copied from its beginning."""
    destination_topic_id: str
    destination_known: int
    """Destination offset of the last record known to be delivered; `sent` counts those after it."""
    sent: int
    gap: int | None = None
    """As `deduplicator.rule.RuleState.gap`."""
    last_record: LastRecord | None = None
    """None before the first record."""
    last_written: str | None = None
    """A checksum of the last record that is counted, as it was written, and KEPT if compaction
    keeps it: where there is another one, or none, the destination has lost records. None where none
    is counted.
    """
    is_known_written: bool = False
    """Whether `destination_known` is the offset of a record of this copy, which has to be visible.
    That of a first frontier is where the partition ended, perhaps with a transaction marker.
    """
    move: Move | None = None
    """The frontier is then the source's end, and nothing is sent after `destination_known`."""

    @property
    def last_written_min(self) -> int:
        """The lowest possible offset of the last written record; -1 if none, or unknown."""
        return self.destination_known + max(0, self.sent)

    @property
    def last_written_checksum(self) -> str | None:
        """Of the last record that is counted."""
        return None if self.last_written is None else self.last_written.removesuffix(KEPT)

    def describe_move(self) -> str:
        """When and where the partition moved, as text; empty while it has not."""
        if self.move is None:
            return ""
        moved_at = datetime.fromtimestamp(self.move.at_ms / 1000, UTC)
        return (
            f"moved on {moved_at:%Y-%m-%d %H:%M:%S} UTC, by {self.move.by}, at source offset"
            f" {self.source_offset + 1}, destination offset {self.move.destination_end}"
        )

    def encode(self) -> str:
        """The metadata string."""
        return orjson.dumps(
            {
                "v": VERSION,
                "f": self.source_offset,
                "e": self.epoch,
                "g": self.gap,
                "i": self.source_identity,
                "c": self.source_partitions,
                "t": self.destination_topic_id,
                "d": self.destination_known,
                "n": self.sent,
                "r": list(self.last_record) if self.last_record else None,
                "w": self.last_written,
                "k": self.is_known_written or None,
                **({"mv": list(self.move)} if self.move else {}),
            }
        ).decode()


def check_not_moved(source: TopicPartition, frontier: Frontier) -> None:
    """MoveRefused for a source partition that has moved to the destination."""
    if frontier.move is not None:
        raise MoveRefused(
            f"{source} {frontier.describe_move()}: producers and consumers are at the destination,"
            " and nothing more is copied. Leave the topic out of what is copied; `reo cutover back`"
            " undoes the move, or sets up the copy in the other direction",
            topic=source.topic,
        )


@lru_cache(DECODED_MAX)
def decode(metadata: str | None) -> Frontier:
    """The frontier in a metadata string; ValueError, with the reason, when it is not one."""
    if not metadata:
        raise ValueError("the commit has no metadata")
    if len(metadata) > BYTES_MAX:
        raise ValueError(f"the metadata is longer than {BYTES_MAX} bytes")
    fields = orjson.loads(metadata)
    # true and 1.0 equal 1
    if not isinstance(fields, dict) or type(fields.get("v")) is not int:
        raise ValueError("it has no version of the frontier")
    if fields["v"] not in READABLE_VERSIONS:
        raise ValueError(
            f"version {fields['v']} of the frontier, and this version of reo reads"
            f" {' and '.join(map(str, READABLE_VERSIONS))}"
        )
    gap, written, is_known_written = (fields.get(key) for key in "gwk")
    numbers = [fields.get(key) for key in "fecdn"] + ([] if gap is None else [gap])
    if not all(type(number) is int and -1 <= number < 2**63 for number in numbers):
        raise ValueError("a number is missing or out of range")
    texts = [fields.get("i"), fields.get("t")] + ([] if written is None else [written])
    has_flag = is_known_written is None or is_known_written is True
    if not all(isinstance(text, str) for text in texts) or not has_flag:
        raise ValueError("a field is missing or of the wrong kind")
    return Frontier(
        source_offset=fields["f"],
        epoch=fields["e"],
        source_identity=fields["i"],
        source_partitions=fields["c"],
        destination_topic_id=fields["t"],
        destination_known=fields["d"],
        sent=fields["n"],
        gap=gap,
        last_record=_parse_last_record(fields.get("r")),
        last_written=written,
        is_known_written=bool(is_known_written),
        move=_parse_move(fields.get("mv")),
    )


def _parse_move(field: object) -> Move | None:
    if field is None:
        return None
    if (
        not isinstance(field, list)
        or [type(part) for part in field] != [int, str, int]
        or not (0 <= field[0] < TIME_MS_END and 0 <= field[2] < 2**63)
    ):
        raise ValueError("the move is no time with a name and an offset")
    return Move(*field)


def _parse_last_record(field: object) -> LastRecord | None:
    if field is None:
        return None
    if (
        not isinstance(field, list)
        or [type(part) for part in field] != [int, str, bool]
        or not 0 <= field[0] < 2**63
    ):
        raise ValueError("the last record is no offset with a checksum")
    return LastRecord(*field)
