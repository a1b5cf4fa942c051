"""Stage two of the model: the rule, what is written, and the checks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from deduplicator.rule import Decision, RuleState
from tests.harness.rule_model.envelopes import Envelope, Record, Variant
from tests.harness.rule_model.source import Source


class Violation(Exception):
    """A record was lost, repeated, reordered, or written against the filter."""


class Stretch(NamedTuple):
    """Of the source, as an accepted envelope spoke of it."""

    after: int
    through: int
    filter_number: int
    history: int


@dataclass(frozen=True, slots=True)
class Committed:
    """What a transaction commits."""

    state: RuleState = field(default_factory=lambda: RuleState(-1, 0))
    position: int = 0
    """In the intermediate partition."""
    output: tuple[Record, ...] = ()
    stretches: tuple[Stretch, ...] = ()
    """Each that was accepted."""
    last: Record | None = None
    has_left_out: bool = False
    """Whether the filter may have left records out after the last one."""
    filter_number: int = 0
    """Of the newest run that was seen."""

    @property
    def covered(self) -> int:
        """Up to which source offset accepted envelopes have spoken."""
        return self.stretches[-1].through if self.stretches else -1


class StageTwo:
    """Reads the intermediate partition, and writes the destination."""

    def __init__(self, source: Source, topic: list[Envelope], variant: Variant) -> None:
        self.source, self.topic, self.variant = source, topic, variant
        self.committed = self.now = Committed()
        self.decisions: list[Decision] = []

    def consume(self) -> None:
        """Decide about the next envelope. A position that is gone is set back to the earliest."""
        if self.now.position > len(self.topic):
            self.now = replace(self.now, position=0)
        before = self.now
        if before.position == len(self.topic):
            return
        envelope = self.topic[before.position]
        decision, state = self.variant.decide(before.state, envelope.head)
        self.decisions.append(decision)
        filter_number = before.filter_number
        if state.epoch == envelope.head.epoch:
            filter_number = max(filter_number, envelope.filter_number)
        self.now = replace(
            before, state=state, position=before.position + 1, filter_number=filter_number
        )
        if decision == "accepted":
            self._accept(envelope, before)

    def consume_all(self) -> None:
        """Everything that is there, in one transaction."""
        while self.now.position != len(self.topic):
            self.consume()
        self.committed = self.now

    def set_back(self) -> None:
        """The destination is empty: the first frontier is at the end of the intermediate partition,
        with the newest epoch that is known.
        """
        now = self.now
        state = RuleState(-1, now.state.epoch if self.variant.keeps_epoch else 0)
        self.committed = self.now = Committed(
            state, len(self.topic), filter_number=now.filter_number
        )

    def _accept(self, envelope: Envelope, before: Committed) -> None:
        """Write its new records, and check them."""
        copied_offset, through = before.state.source_offset, envelope.head.through
        if envelope.filter_number < before.filter_number:
            raise Violation(f"an older filter's, after a newer one: {envelope}")
        records = self.variant.choose_records(envelope, copied_offset)
        output = before.output + records
        offsets = [record.source_offset for record in output]
        if offsets != sorted(set(offsets)):
            raise Violation(f"repeated or reordered: {offsets}")
        stretch = Stretch(before.covered, through, envelope.filter_number, envelope.history)
        self.now = replace(
            self.now,
            output=output,
            stretches=(*before.stretches, stretch),
            last=output[-1] if output else None,
            has_left_out=envelope.head.has_left_out or (before.has_left_out and not records),
        )
        if envelope.history < self.source.history:  # the next run sees what was revised, and stops
            stretch = stretch._replace(through=min(through, self.source.cut - 1))
        self._check_stretch(stretch)

    def check_all(self) -> None:
        """Everything that was accepted, and nothing of a revised history, is at the destination."""
        now = self.now
        rest = Stretch(now.covered, now.state.source_offset, now.filter_number, self.source.history)
        for stretch in (*now.stretches, rest):
            self._check_stretch(stretch)
        for offset, history in now.output:
            if history < self.source.history and offset >= self.source.cut:
                raise Violation(f"of a history that was revised, and nobody has seen it: {offset}")

    def _check_stretch(self, stretch: Stretch) -> None:
        """What is visible there, and is to be copied, is at the destination."""
        after, through, filter_number, _ = stretch
        for offset in self.source.list_kept(after + 1, through + 1, filter_number):
            record = Record(offset, self.source.records[offset].history)
            if record not in self.now.output:
                raise Violation(f"lost: {record}")
