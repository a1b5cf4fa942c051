"""What has to be true after every step, and at the end. The judge reads the clusters' logs; it asks nothing of the service.

Of each partition, what a `read_committed` reader of the destination sees is a prefix of the source's visible records: in their
order, each once, with key, value, headers and timestamp; nothing of aborted transactions, nothing else. Records that the source
has deleted or compacted meanwhile may be missing. Or the service has ended, with the named error that a fault calls for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from common.routes import Place
from simulator import logs
from simulator.kafka.log import Log

if TYPE_CHECKING:
    from simulator.system import System

Content = tuple[Any, ...]


@dataclass(slots=True)
class Expected:
    """One visible record of the source."""

    offset: int
    content: Content
    seen_at: float = 0.0
    """Virtual time, when it could first be read."""
    is_optional: bool = False
    """Whether the source has deleted it before it was seen at the destination."""


@dataclass(slots=True)
class Copy:
    """One partition: what was visible at the source, and how much of it at the destination."""

    expected: list[Expected] = field(default_factory=list)
    read_to: int = 0
    """The source offset up to which `expected` is complete."""
    next: int = 0
    """The next one to come, in `expected`."""
    seen_to: int = 0
    """The destination offset up to which it was looked at."""
    compared: int = 0
    begin: int = 0
    """The source offset at which the copy begins."""
    is_begun: bool = True
    """Whether that is known; with `source.start=latest` the first frontier says it."""


class Violated(Exception):
    """The promise is broken."""


class Judge:
    """Looks at both clusters whenever one of their logs has changed."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.copies: dict[int, Copy] = {}
        self.change_count = -1
        self.is_source_history_lost = False
        """The source lost records that were copied: what follows is another history, and the service has to stop."""
        self.is_destination_history_lost = False
        self.violation = ""

    @property
    def compared(self) -> int:
        """Records."""
        return sum(copy.compared for copy in self.copies.values())

    @property
    def is_history_lost(self) -> bool:
        """Of one side: there is nothing any more that the copy could be compared with."""
        return self.is_source_history_lost or self.is_destination_history_lost

    def is_violated(self) -> bool:
        """Asked after each step."""
        if self.change_count != Log.change_count and not self.violation:
            self.change_count = Log.change_count
            try:
                self._look()
            except Violated as what:
                self.violation = str(what)
        return bool(self.violation)

    def _look(self) -> None:
        for partition in range(logs.partitions(self.system.source, self.system.topic)):
            copy = self._copy(partition)
            if not copy.is_begun:
                self._begin(partition, copy)
            self._extend(Place(self.system.topic, partition), copy)
            if not self.is_history_lost:
                self._compare(Place(self.system.copy, partition), copy)

    def _copy(self, partition: int) -> Copy:
        return self.copies.setdefault(partition, Copy(is_begun=self.system.plan.start == "earliest"))

    def _begin(self, partition: int, copy: Copy) -> None:
        """The first frontier is the end of what was there when it was chosen; a partition that was added is copied whole."""
        frontier = logs.frontier(self.system.destination, self.system.settings.application, Place(self.system.proxy, partition))
        if frontier is None:
            return
        copy.begin, copy.is_begun = frontier + 1, True
        known, now = self.system.ends_at_start, self.system.source.log(self.system.topic, partition).end
        least, most = (known[partition], now) if partition < len(known) else (0, 0)
        if not self.is_history_lost and not least <= copy.begin <= most:
            raise Violated(f"the copy of partition {partition} begins at source offset {copy.begin}, and not between {least} and {most}")
        copy.expected = [wanted for wanted in copy.expected if wanted.offset >= copy.begin]

    def _extend(self, place: Place, copy: Copy) -> None:
        found = logs.committed(self.system.source, place, copy.read_to)
        if found is not None and not self.is_source_history_lost:
            records, copy.read_to = found
            copy.expected += [Expected(offset, content, self.system.schedule.now) for offset, content in records
                              if offset >= copy.begin and self.system.passes(content)]

    def _compare(self, place: Place, copy: Copy) -> None:
        found = logs.committed(self.system.destination, place, copy.seen_to)
        if found is None:
            return
        records, copy.seen_to = found
        if records and not copy.is_begun:
            raise Violated(f"{place} has a record before the first frontier is committed")
        for offset, content in records:
            while copy.next < len(copy.expected) and copy.expected[copy.next].is_optional and copy.expected[copy.next].content != content:
                copy.next += 1
            if copy.next == len(copy.expected):
                raise Violated(f"{place} has a record at offset {offset} that comes after all of the source's: {content}{self._known(copy, content)}")
            wanted = copy.expected[copy.next]
            if wanted.content != content:
                raise Violated(f"{place} has at offset {offset} {content}{self._known(copy, content)}, and the source's next one is {wanted.content} "
                               f"at offset {wanted.offset}")
            copy.next += 1
            copy.compared += 1

    @staticmethod
    def _known(copy: Copy, content: Content) -> str:
        before = [wanted.offset for wanted in copy.expected[:copy.next] if wanted.content == content]
        after = [wanted.offset for wanted in copy.expected[copy.next:] if wanted.content == content]
        if before:
            return f" (a duplicate of source offset {before[0]})"
        return f" (of source offset {after[0]}: records before it are missing)" if after else " (unknown to the source)"

    def is_complete(self) -> bool:
        """Whether everything visible at the source is at the destination."""
        if not all(copy.is_begun for copy in self.copies.values()):
            self.change_count = -1  # a first frontier changes no log
        self.is_violated()
        return all(copy.is_begun and all(wanted.is_optional for wanted in copy.expected[copy.next:]) for copy in self.copies.values())

    def waiting_for_s(self) -> float:
        """How long the first record has waited that is not copied."""
        first = [copy.expected[copy.next].seen_at for copy in self.copies.values()
                 if copy.is_begun and copy.next < len(copy.expected) and not copy.expected[copy.next].is_optional]
        return self.system.schedule.now - min(first) if first else 0.0

    def missing(self) -> str:
        """What is not, in words."""
        return ", ".join(f"partition {partition}: {len(copy.expected) - copy.next} of {len(copy.expected)}, from source offset "
                         f"{copy.expected[copy.next].offset}" for partition, copy in self.copies.items() if copy.next < len(copy.expected))

    def allow_missing(self, partition: int, offsets: range | frozenset[int]) -> bool:
        """The source has deleted these; whether one of them was not copied yet."""
        self.is_violated()
        copy = self._copy(partition)
        affected = [wanted for wanted in copy.expected[copy.next:] if wanted.offset in offsets]
        for wanted in affected:
            wanted.is_optional = True
        return bool(affected)

    def copied_to(self, partition: int) -> int:
        """The source offset of the newest record at the destination, or -1."""
        copy = self._copy(partition)
        return copy.expected[copy.next - 1].offset if copy.next else -1

    def begin_of(self, partition: int) -> int:
        """The source offset at which the copy begins, as far as it is known."""
        return self._copy(partition).begin

    def begin_again(self) -> None:
        """The destination is another topic now."""
        for partition, copy in self.copies.items():
            copy.next = copy.seen_to = 0
            there = logs.data(self.system.source, Place(self.system.topic, partition))
            for wanted in copy.expected:
                wanted.is_optional = wanted.offset not in there

    def look_again(self, partition: int) -> None:
        """The source has lost offsets of which nothing was read: what is not copied yet is what can be seen there now. (A lost marker hides records.)"""
        copy = self.copies[partition]
        copy.expected = copy.expected[:copy.next]
        copy.read_to = min(copy.read_to, self.copied_to(partition) + 1)
        if partition < len(self.system.ends_at_start):
            self.system.ends_at_start[partition] = min(self.system.ends_at_start[partition], self.system.source.log(self.system.topic, partition).end)
