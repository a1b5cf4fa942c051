"""Stage one of the model: runs, their Spark tasks, and the planner."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from common.envelope import Head
from replicator.runs.epochs import RANDOM_BITS, choose_epoch
from tests.harness.rule_model.envelopes import IDENTITY, Envelope, Record, Variant
from tests.harness.rule_model.source import LegalStop, Source
from tests.harness.rule_model.stage_two import Committed


@dataclass(slots=True)
class Attempt:
    """An attempt of a Spark task. Nobody stops one that was abandoned."""

    run: Run
    position: int
    end: int
    through: int
    """Up to here its envelopes cover the source."""
    in_flight: int = 0
    has_failed: bool = False


@dataclass(slots=True)
class Run:
    """A run of stage one, for ever: one that was superseded is a zombie."""

    epoch: int
    filter_number: int
    history: int
    begin: int
    """Of the current batch."""
    end: int
    through: int
    """Up to here the batches before it cover the source."""
    attempts: list[Attempt] = field(default_factory=list)
    """Of the current batch."""


class StageOne:
    """All runs that there ever were, and the one that is planned."""

    def __init__(self, source: Source, chance: random.Random, variant: Variant) -> None:
        self.source, self.chance, self.variant = source, chance, variant
        self.filter_number = 0
        self.runs: list[Run] = []
        self.attempts: list[Attempt] = []
        self.in_flight: list[tuple[Envelope, Attempt | None]] = []
        self.epoch: int | None = None
        """Of the run that is planned."""
        self.planned_offset = -1
        """Where it begins if it installs no epoch."""

    def plan(self, committed: Committed) -> None:
        """Choose an epoch above all that were seen, and write it, until the frontier shows it."""
        state = committed.state
        if self.epoch is None or state.epoch > self.epoch:
            # a process knows its own earlier ones; another one, only what the frontier has
            own = [run.epoch for run in self.runs] if self.chance.random() < 0.7 else []
            random_bits = self.chance.getrandbits(RANDOM_BITS)
            self.epoch = choose_epoch([state.epoch, *own], random_bits)
            self.planned_offset = state.source_offset
        if self.variant.installs_epoch and state.epoch < self.epoch:
            self._send(Head(IDENTITY, self.epoch, 0, -1, -1))

    def begin_run(self, committed: Committed) -> bool:
        """If the epoch is installed, at the frontier of this moment. Returns whether it began."""
        if self.epoch is None:
            return False
        copied_offset = self.planned_offset
        if self.variant.installs_epoch:
            if committed.state.epoch != self.epoch:
                return False
            copied_offset = committed.state.source_offset
        if self.variant.compares_history:
            self._compare_history(committed)
        if copied_offset + 1 > len(self.source):
            raise LegalStop("the source ends before the frontier")
        begin, end, history = copied_offset + 1, len(self.source), self.source.history
        self.runs.append(Run(self.epoch, self.filter_number, history, begin, end, copied_offset))
        self.epoch = None
        return True

    def _compare_history(self, committed: Committed) -> None:
        """The last copied record has to be at the source, and none visible after it."""
        last, copied_offset, source = committed.last, committed.state.source_offset, self.source
        begin = 0 if last is None else last.source_offset + 1
        if last and source.find_history(last.source_offset) != last.history:
            raise LegalStop("the source has another record at the last offset")
        if not committed.has_left_out:
            if source.list_visible(begin, copied_offset + 1):
                raise LegalStop("the source has records after the last one")
        elif any(
            stretch.history < source.history and stretch.through >= source.cut
            for stretch in committed.stretches
        ):
            raise LegalStop("nobody can see it: the filter has left out what was revised")

    def start_attempt(self, run: Run) -> Attempt:
        """An attempt of the task of the current batch, which ends where the source ended when its
        first attempt began.
        """
        if not run.attempts:
            run.end = len(self.source)
        after = self.variant.after_of_task(run.begin, run.through)
        attempt = Attempt(run, run.begin, run.end, after)
        run.attempts.append(attempt)
        self.attempts.append(attempt)
        return attempt

    def write_envelope(self, attempt: Attempt) -> None:
        """Up to three rows of the source, sent. Nothing is sent after what has failed."""
        run, source = attempt.run, self.source
        if run.history != source.history or attempt.has_failed:
            return  # where the source has lost records, its consumer has failed, too
        rows = source.list_visible(attempt.position, attempt.end)[: self.chance.randint(1, 3)]
        attempt.position = rows[-1] + 1 if rows else attempt.end
        if rows:
            kept = source.list_kept(rows[0], rows[-1] + 1, run.filter_number)
            records = tuple(Record(offset, source.records[offset].history) for offset in kept)
            head = Head(
                *(IDENTITY, run.epoch, 0, attempt.through, rows[-1], 0, len(kept), 0),
                has_left_out=len(kept) < len(rows),
            )
            attempt.through = rows[-1]
            self._send(head, records, run, attempt)
        self._commit_batch(run)

    def write_empty_envelope(self, run: Run, committed: Committed) -> None:
        """The watch of a run has seen nothing visible after the frontier."""
        copied_offset, source = committed.state.source_offset, self.source
        end = self.chance.randint(copied_offset, len(source) + 1)
        if (
            copied_offset + 1 < end <= len(source)
            and run.history == source.history
            and not source.list_visible(copied_offset + 1, end)
        ):
            self._send(Head(IDENTITY, run.epoch, 0, copied_offset, end - 1), (), run)

    def _send(
        self,
        head: Head,
        records: tuple[Record, ...] = (),
        run: Run | None = None,
        attempt: Attempt | None = None,
    ) -> None:
        filter_number = run.filter_number if run else self.filter_number
        history = run.history if run else self.source.history
        self.in_flight.append((Envelope(head, records, filter_number, history), attempt))
        if attempt:
            attempt.in_flight += 1

    def forget_send(self, number: int) -> None:
        """It is acknowledged, or has failed."""
        _, attempt = self.in_flight.pop(number)
        if attempt:
            attempt.in_flight -= 1
            self._commit_batch(attempt.run)

    def _commit_batch(self, run: Run) -> None:
        """When an attempt has written all, and all of it is acknowledged."""
        for attempt in run.attempts:
            if attempt.position >= attempt.end and not attempt.in_flight and not attempt.has_failed:
                run.begin, run.through, run.attempts = run.end, attempt.through, []
                return
