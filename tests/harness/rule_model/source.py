"""The source topic of the model, and the filter."""

from __future__ import annotations

import random
from dataclasses import dataclass


class LegalStop(Exception):
    """The service stops with a named error: nothing wrong is written."""


@dataclass(slots=True)
class SourceRecord:
    """An offset of the source: a record, or (not visible) a marker or an aborted record."""

    history: int
    is_visible: bool
    kind: int
    """1: a filter with an even number leaves it out."""


class Source:
    """A partition that is compacted; it may lose its end, and grow again, once."""

    def __init__(self, chance: random.Random, has_kinds: bool) -> None:
        self.chance = chance
        self.has_kinds = has_kinds
        self.records: list[SourceRecord] = []
        self.history = 0
        """1 after it has lost records."""
        self.cut = 0
        """From this offset on, the records are of that history."""
        for _ in range(chance.randint(2, 6)):
            self.append()

    def __len__(self) -> int:
        return len(self.records)

    def append(self) -> None:
        """The source grows."""
        kind = int(self.has_kinds and self.chance.random() < 0.4)
        self.records.append(SourceRecord(self.history, self.chance.random() < 0.8, kind))

    def compact(self) -> None:
        """The source loses a visible record, never the newest one."""
        visible = self.list_visible(0, len(self) - 1)
        if visible:
            self.records[self.chance.choice(visible)].is_visible = False

    def revise(self, copied_offset: int) -> None:
        """The source loses records that are not copied, all from some offset on, and grows again.
        (If copied ones are lost, the next run finds that out.)
        """
        if self.history or copied_offset + 1 >= len(self):
            return
        length = len(self) + self.chance.randint(0, 2)
        self.history, self.cut = 1, self.chance.randint(copied_offset + 1, len(self) - 1)
        del self.records[self.cut :]
        while len(self) < length:
            self.append()

    def list_visible(self, begin: int, end: int) -> list[int]:
        """Offsets of visible records."""
        return [
            offset
            for offset in range(begin, min(end, len(self)))
            if self.records[offset].is_visible
        ]

    def list_kept(self, begin: int, end: int, filter_number: int) -> list[int]:
        """Offsets of visible records that this filter does not leave out."""
        return [
            offset
            for offset in self.list_visible(begin, end)
            if filter_number % 2 == 1 or self.records[offset].kind == 0
        ]

    def find_history(self, offset: int) -> int | None:
        """Of the record at an offset; None beyond the end."""
        return self.records[offset].history if offset < len(self) else None
