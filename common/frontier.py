"""The frontier: the whole state of reo, as the metadata string of the consumer group's committed
offset.

It is written by `send_offsets_to_transaction`, so it is atomic with the output, and read by
`Consumer.committed`. Only stage two writes it; stage one only reads it. A partition's frontier has

- how far the source is copied, and in which epoch (`RuleState`, the state of `deduplicator.rule`),
- what was copied: the identity of the source topic, and how many partitions it had at the start,
- which history was copied: the offset and a checksum of the last accepted source record, with which
  the source is compared before each run (`replicator.last_record_check`),
- the position in the output: the destination topic's id, the offset of the last record whose
  delivery is known, how many were sent after it, and a checksum of the last of them. The check at
  the start compares these with the data (`deduplicator.frontier_check`).

The string is JSON with short keys and a version; brokers keep 4,096 bytes by default
(`offset.metadata.max.bytes`), and this needs about 300.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import orjson

VERSION = 1
BYTES_MAX = 4095
KEPT = "+"
"""After the checksum of a written record with a key and a value: compaction keeps the newest one of
each key.
"""


class Link(NamedTuple):
    """The record of the current epoch that was covered last; the next one has to follow it."""

    source_offset: int
    attempt: int
    sequence: int


class Hole(NamedTuple):
    """Records of the current epoch were dropped because one before them is missing; all of them lie
    between these two source offsets.
    """

    first: int
    """The lowest source offset that can be among them: no batch may begin at or after it."""
    last: int
    """The highest source offset that was dropped: the hole is filled when the frontier reaches
    it.
    """


class LastRecord(NamedTuple):
    """The last source record that was accepted: a source that no longer has it has lost records."""

    source_offset: int
    checksum: str
    """Of key, value, headers and timestamp (`common.records.compute_checksum`)."""
    left_out: bool = False
    """Whether `filter.sql` may have left records out between this one and the frontier; otherwise
    none was visible there.
    """


class RuleState(NamedTuple):
    """What the rule knows of one intermediate partition."""

    frontier: int
    """The last accepted source offset; -1 when nothing was accepted."""
    epoch: int
    link: Link | None
    hole: Hole | None = None
    """The open hole of this epoch."""


@dataclass(frozen=True, slots=True)
class Frontier:
    """One partition's commit metadata."""

    rule: RuleState
    source_identity: str
    source_partitions: int
    """How many partitions the source had when the copy began: one beyond is new, and is copied from
    its beginning.
    """
    destination_topic_id: str
    destination_known: int
    """Destination offset of the last record whose delivery is known; every visible record after it
    is counted in `sent`.
    """
    sent: int
    last_record: LastRecord | None = None
    """None before the first record."""
    last_written: str | None = None
    """A checksum of the last record that is counted, as it was written, and KEPT if compaction
    keeps it: where there is another one, or none, the destination has lost records. None where none
    is counted.
    """
    leader_epoch: int | None = None
    """Of the intermediate partition: up to this one, nothing is missing before the position
    (`deduplicator.leader_change`). None where it is not known.
    """
    intermediate_topic_id: str | None = None
    """Of the topic that the position is in; None in a frontier of an earlier version."""
    is_known_written: bool = False
    """Whether `destination_known` is the offset of a record of this copy, which has to be visible.
    That of a first frontier is where the partition ended, perhaps with a transaction marker.
    """

    @property
    def last_written_min(self) -> int:
        """The lowest possible destination offset of the last record that was written; -1 when none
        was, or when it is not known.
        """
        return self.destination_known + max(0, self.sent)

    @property
    def last_written_checksum(self) -> str | None:
        """Of the last record that is counted."""
        return None if self.last_written is None else self.last_written.removesuffix(KEPT)

    def encode(self) -> str:
        """The metadata string."""
        link, hole = (list(pair) if pair else None for pair in (self.rule.link, self.rule.hole))
        return orjson.dumps(
            {
                "v": VERSION,
                "f": self.rule.frontier,
                "e": self.rule.epoch,
                "l": link,
                "h": hole,
                "i": self.source_identity,
                "c": self.source_partitions,
                "t": self.destination_topic_id,
                "d": self.destination_known,
                "n": self.sent,
                "r": list(self.last_record) if self.last_record else None,
                "w": self.last_written,
                "p": self.leader_epoch,
                "m": self.intermediate_topic_id,
                "k": self.is_known_written or None,
            }
        ).decode()


def decode(metadata: str | None) -> Frontier:
    """The frontier in a metadata string; ValueError, with the reason, when it is not one."""
    if not metadata:
        raise ValueError("the commit has no metadata")
    if len(metadata) > BYTES_MAX:
        raise ValueError(f"the metadata is longer than {BYTES_MAX} bytes")
    fields = orjson.loads(metadata)
    # true and 1.0 equal 1
    if not isinstance(fields, dict) or type(fields.get("v")) is not int or fields["v"] != VERSION:
        raise ValueError(f"not version {VERSION} of the frontier")
    # a frontier that does not say whether a hole is open is none
    link, hole = fields.get("l"), fields.get("h", "missing")
    numbers = [fields.get(key) for key in "fecdn"] + [
        number for part in (link, hole) if isinstance(part, list) for number in part
    ]
    written, leader_epoch, intermediate_id = (fields.get(key) for key in "wpm")
    numbers += [] if leader_epoch is None else [leader_epoch]
    texts = [fields.get("i"), fields.get("t")]
    texts += [text for text in (written, intermediate_id) if text is not None]
    if not all(type(number) is int and -1 <= number < 2**63 for number in numbers):
        raise ValueError("a number is missing or out of range")
    parts = all(
        part is None or (isinstance(part, list) and len(part) == length)
        for part, length in ((link, 3), (hole, 2))
    )
    is_known_written = fields.get("k")
    has_kinds = all(isinstance(text, str) for text in texts)
    if not (has_kinds and parts and (is_known_written is None or is_known_written is True)):
        raise ValueError("a field is missing or of the wrong kind")
    if hole and min(hole) < 0:
        raise ValueError("a number of a hole is out of range")
    rule = RuleState(
        fields["f"], fields["e"], Link(*link) if link else None, Hole(*hole) if hole else None
    )
    return Frontier(
        rule,
        fields["i"],
        fields["c"],
        fields["t"],
        fields["d"],
        fields["n"],
        _parse_last_record(fields.get("r")),
        written,
        leader_epoch,
        intermediate_id,
        bool(is_known_written),
    )


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
