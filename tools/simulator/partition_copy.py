"""What the judge knows of one partition: the records that were visible at the source, and how many
of them the destination has.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from common.routes import TopicPartition
from tools.simulator.log_reader import Content


class Violation(Exception):
    """The copy is not what it must be."""


@dataclass(slots=True)
class ExpectedRecord:
    """One visible record of the source."""

    offset: int
    content: Content
    visible_at: float = 0.0
    """The virtual time at which it became visible."""
    copied_at: float = math.inf
    """The virtual time at which the destination had its copy."""
    is_optional: bool = False
    """Whether the source deleted it before the destination had its copy."""
    is_left_out: bool = False
    """Whether a filter leaves it out."""


@dataclass(slots=True)
class PartitionCopy:
    """One partition: the records that were visible at the source, and how many of them the
    destination has.
    """

    expected: list[ExpectedRecord] = field(default_factory=list)
    changed_at: tuple[int, int] = (-1, -1)
    """`Log.changed_at` of both sides when they were compared last."""
    source_read_to: int = 0
    """`expected` is complete up to this source offset."""
    next_index: int = 0
    """The index in `expected` of the next record to be copied."""
    destination_read_to: int = 0
    """The destination is compared up to this offset."""
    compared: int = 0
    first_offset: int = 0
    """The copy begins at this source offset."""
    is_first_offset_known: bool = True
    """With `source.start=latest`, `first_offset` is known when the first frontier is committed."""

    def list_uncopied(self) -> list[ExpectedRecord]:
        """The records that the destination has to get."""
        return [
            record
            for record in self.expected[self.next_index :]
            if not (record.is_optional or record.is_left_out)
        ]

    def compare_record(
        self, destination: TopicPartition, offset: int, content: Content, now_s: float
    ) -> None:
        """The next record of the destination; Violation when it is not the next one to copy."""
        while self.next_index < len(self.expected) and (
            self.expected[self.next_index].is_left_out
            or (
                self.expected[self.next_index].is_optional
                and self.expected[self.next_index].content != content
            )
        ):
            self.next_index += 1
        if self.next_index == len(self.expected):
            raise Violation(
                f"{destination} has a record at offset {offset} after the copies of all source"
                f" records: {content}{self._explain_mismatch(content)}"
            )
        expected_record = self.expected[self.next_index]
        if expected_record.content != content:
            raise Violation(
                f"{destination} has {content} at offset {offset}{self._explain_mismatch(content)};"
                f" the next source record is {expected_record.content} at offset"
                f" {expected_record.offset}"
            )
        expected_record.copied_at = now_s
        self.next_index += 1
        self.compared += 1

    def _explain_mismatch(self, content: Content) -> str:
        before = [
            expected_record.offset
            for expected_record in self.expected[: self.next_index]
            if expected_record.content == content
        ]
        after = [
            expected_record.offset
            for expected_record in self.expected[self.next_index :]
            if expected_record.content == content
        ]
        if before:
            return f" (a duplicate of source offset {before[0]})"
        return (
            f" (of source offset {after[0]}: records before it are missing)"
            if after
            else " (unknown to the source)"
        )
