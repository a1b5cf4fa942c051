"""Envelopes of the model, and what may be replaced by something wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from common.envelope import Head
from deduplicator import rule
from deduplicator.rule import Decision, RuleState

IDENTITY = "0123456789abcdef"
Decide = Callable[[RuleState, Head], tuple[Decision, RuleState]]


class Record(NamedTuple):
    """A record in an envelope, or at the destination."""

    source_offset: int
    history: int


class Envelope(NamedTuple):
    """An envelope, and what a real one does not say: of which world it is."""

    head: Head
    records: tuple[Record, ...]
    filter_number: int
    history: int


def choose_records(envelope: Envelope, copied_offset: int) -> tuple[Record, ...]:
    """Those that are written of an accepted envelope."""
    return tuple(record for record in envelope.records if record.source_offset > copied_offset)


class Variant(NamedTuple):
    """The parts of reo that decide."""

    decide: Decide = rule.decide
    choose_records: Callable[[Envelope, int], tuple[Record, ...]] = choose_records
    installs_epoch: bool = True
    """Whether a run begins at a frontier that shows its epoch."""
    compares_history: bool = True
    """Whether a run begins only if the source still has the last copied record."""
    keeps_epoch: bool = True
    """Whether the epoch outlives a destination that was set back."""
    after_of_task: Callable[[int, int], int] = lambda _begin, through: through
    """What the first envelope of a task is said to follow: from where its batch begins, and up to
    where the batches before it cover the source.
    """
