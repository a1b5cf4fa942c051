"""What Spark may write to one intermediate partition when everything goes wrong: attempts that are given up and write on, lost records, runs that overlap."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from common.frontier import RuleState
from common.origin import Origin

IDENTITY = "0123456789abcdef"


def make_origin(source_offset: int, epoch: int = 1, batch: int = 1, sequence: int = 0) -> Origin:
    """One record's origin; the fields that the rule does not look at are fixed."""
    return Origin(0, source_offset, 1, 0, epoch, batch, sequence, IDENTITY)


@dataclass
class TaskAttempt:
    """A task that writes a batch: where it began and goes on, by position in what is visible. A straggler was given up by Spark, and writes on."""

    epoch: int
    batch: int
    first: int
    next: int
    lost: bool = False
    straggler: bool = False


class StageOne:
    """All that Spark may do, and no more: a batch begins where the one before it was wholly written, and a run at a frontier that was committed."""

    def __init__(self, visible: list[int], rng: random.Random) -> None:
        self.visible = visible
        self.rng = rng
        self.batches = 0
        self.attempts: list[TaskAttempt] = []

    def step(self, state: RuleState) -> Origin | None:
        """One thing that happens, and the record that it wrote, if any."""
        chance = self.rng.random()
        if not self.attempts or chance < 0.02:
            self._plan(state)
        attempt = self.rng.choice(self.attempts[-3:])
        if not attempt.straggler and chance < 0.1:  # the attempt fails, or Spark takes it for lost: the task begins again, and the old one may write on
            self.attempts.append(replace(attempt, next=attempt.first, lost=False))
            attempt.straggler = True
        elif not attempt.straggler and not attempt.lost and attempt.next > attempt.first and chance < 0.35:
            self.batches += 1
            self.attempts.append(replace(attempt, batch=self.batches, first=attempt.next))
            attempt.straggler = True
        elif attempt.next < len(self.visible):
            attempt.next += 1
            if chance < 0.97:
                return make_origin(self.visible[attempt.next - 1], attempt.epoch, attempt.batch, attempt.next - 1 - attempt.first)
            attempt.lost = True
        return None

    def _plan(self, state: RuleState) -> None:
        """A run above the committed epoch: it may have the epoch of one that has left no trace."""
        self.batches += 1
        begin = sum(offset <= state.frontier for offset in self.visible)
        self.attempts.append(TaskAttempt(state.epoch + self.rng.randint(1, 2), self.batches, begin, begin))
