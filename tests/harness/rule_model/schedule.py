"""Schedules of the model: chance chooses what happens next, then everything arrives, and a new run
copies the rest.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from deduplicator.rule import Decision
from tests.harness.rule_model.envelopes import Envelope, Variant
from tests.harness.rule_model.source import LegalStop, Source
from tests.harness.rule_model.stage_one import Run, StageOne
from tests.harness.rule_model.stage_two import StageTwo, Violation

STEPS_MIN, STEPS_MAX = 40, 160
PLANS_MAX = 3
LAST_BATCHES = 4
FAULTS = ("lose_envelopes", "set_back", "change_filter", "revise_history")
"""What may happen in addition: the intermediate topic loses envelopes, and its positions jump; the
destination is set back to nothing; the filter is changed; the source loses records that are not
copied, and grows again.
"""
STEPS = {
    "append": 10,
    "compact": 3,
    "plan": 5,
    "begin_run": 4,
    "write": 23,
    "deliver": 17,
    "lose_send": 3,
    "consume": 25,
    "fail_transaction": 2,
}
"""How often each happens, in comparison; and, as often as one of the faults, 2."""


class Outcome(NamedTuple):
    """Of one schedule."""

    violation: str | None
    is_stopped: bool
    """By a named error."""
    decisions: tuple[Decision, ...]
    runs: int


class Schedule:
    """One, from its seed."""

    def __init__(self, seed: int, faults: Iterable[str], variant: Variant) -> None:
        self.chance = random.Random(seed)
        self.source = Source(self.chance, has_kinds="change_filter" in faults)
        self.topic: list[Envelope] = []
        self.one = StageOne(self.source, self.chance, variant)
        self.two = StageTwo(self.source, self.topic, variant)
        self.weights = STEPS | dict.fromkeys(faults, 2)

    def run(self) -> Outcome:
        """All of it."""
        violation, is_stopped = None, False
        steps = self.chance.choices(
            list(self.weights),
            list(self.weights.values()),
            k=self.chance.randint(STEPS_MIN, STEPS_MAX),
        )
        try:
            for step in steps:
                getattr(self, step)()
            self.finish()
        except Violation as found:
            violation = str(found)
        except LegalStop:
            is_stopped = True
        return Outcome(violation, is_stopped, tuple(self.two.decisions), len(self.one.runs))

    def append(self) -> None:
        """The source grows."""
        self.source.append()

    def compact(self) -> None:
        """The source loses a record."""
        self.source.compact()

    def plan(self) -> None:
        """A new run is planned, or goes on to be."""
        if self.one.epoch is not None or not self.one.runs or self.chance.random() < 0.4:
            self.one.plan(self.two.committed)

    def begin_run(self) -> None:
        """The planned run begins."""
        self.one.begin_run(self.two.committed)

    def write(self) -> None:
        """A run writes: mostly the newest one, also one that was superseded, also an attempt that
        was abandoned.
        """
        chance, one = self.chance, self.one
        if not one.runs:
            return
        run = one.runs[-1] if chance.random() < 0.7 else chance.choice(one.runs)
        if not run.attempts or (len(run.attempts) < 3 and chance.random() < 0.1):
            one.start_attempt(run)
        one.write_envelope(
            run.attempts[-1] if chance.random() < 0.8 else chance.choice(one.attempts)
        )
        if chance.random() < 0.1:
            one.write_empty_envelope(run, self.two.committed)

    def deliver(self) -> None:
        """An envelope arrives, mostly in order; perhaps it will arrive again."""
        chance, in_flight = self.chance, self.one.in_flight
        if in_flight:
            number = 0 if chance.random() < 0.6 else chance.randrange(len(in_flight))
            self.topic.append(in_flight[number][0])
            if chance.random() < 0.9:
                self.one.forget_send(number)

    def lose_send(self) -> None:
        """A send fails, and so does its attempt; perhaps the envelope has arrived."""
        chance, in_flight = self.chance, self.one.in_flight
        if in_flight:
            number = chance.randrange(len(in_flight))
            envelope, attempt = in_flight[number]
            if chance.random() < 0.3:
                self.topic.append(envelope)
            if attempt:
                attempt.has_failed = True
            self.one.forget_send(number)

    def consume(self) -> None:
        """Stage two reads, and perhaps commits."""
        self.two.consume()
        if self.chance.random() < 0.5:
            self.two.committed = self.two.now

    def fail_transaction(self) -> None:
        """All since the last commit is forgotten."""
        self.two.now = self.two.committed

    def lose_envelopes(self) -> None:
        """The intermediate topic loses some, or all; and reading goes on anywhere."""
        chance, two = self.chance, self.two
        if self.topic and chance.random() < 0.6:
            del self.topic[chance.randrange(len(self.topic))]
        elif chance.random() < 0.2:
            self.topic.clear()
        if chance.random() < 0.5:
            position = chance.randint(0, len(self.topic))
            two.committed = two.now = replace(two.committed, position=position)

    def set_back(self) -> None:
        """The destination is empty."""
        self.two.set_back()

    def change_filter(self) -> None:
        """For the runs that are planned from now on."""
        self.one.filter_number += 1
        self.one.epoch = None

    def revise_history(self) -> None:
        """The source loses its end, and grows again."""
        two = self.two
        self.source.revise(max(two.now.state.source_offset, two.committed.state.source_offset))
        self.one.epoch = None

    def finish(self) -> None:
        """Everything arrives and is read; then a new run copies what is missing, and what comes
        after it.
        """
        one = self.one
        self._deliver_all()
        for _ in range(PLANS_MAX):
            one.epoch = None
            one.plan(self.two.committed)
            self._deliver_all()
            if one.begin_run(self.two.committed):
                break
        else:
            raise Violation("no run can begin")
        for _ in range(LAST_BATCHES):
            self._copy_batch(one.runs[-1])
            self.source.append()
            self.source.append()
        self.two.check_all()

    def _copy_batch(self, run: Run) -> None:
        """All envelopes of a batch arrive, in order."""
        attempt = self.one.start_attempt(run)
        while attempt.position < attempt.end:
            self.one.write_envelope(attempt)
        self._deliver_all()
        begin = self.two.now.state.source_offset + 1
        if self.source.list_kept(begin, attempt.end, run.filter_number):
            raise Violation("a run does not copy what it has read")

    def _deliver_all(self) -> None:
        while self.one.in_flight:
            self.topic.append(self.one.in_flight[0][0])
            self.one.forget_send(0)
        self.two.consume_all()
