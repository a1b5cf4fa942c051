"""What Spark can write to one intermediate partition after failures: task attempts that were
abandoned but still write, lost records, overlapping runs.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from common.frontier import RuleState
from common.origin import Origin
from fuzz.messages import IDENTITY


def make_origin(source_offset: int, epoch: int = 1, attempt: int = 1, sequence: int = 0) -> Origin:
    """One record's origin; the fields that the rule ignores are fixed."""
    return Origin(0, source_offset, 1, 0, epoch, attempt, sequence, IDENTITY)


@dataclass
class TaskAttempt:
    """A task attempt that writes a batch. A straggler was abandoned by Spark and still writes."""

    epoch: int
    number: int
    """Which attempt it is; no other one has this number."""
    begin: int
    """The source offset at which its batch begins."""
    position: int
    """The source offset that it reads next."""
    sequence: int = 0
    """How many records it has read."""
    lost: bool = False
    straggler: bool = False


class StageOne:
    """All that Spark can do: a batch starts where the batch before it was completely written, and a
    run starts at a committed frontier. If `compacts`, records vanish from the source meanwhile.
    """

    def __init__(self, visible: list[int], rng: random.Random, compacts: bool = False) -> None:
        self.visible = visible
        self.rng = rng
        self.compacts = compacts
        self.attempts: list[TaskAttempt] = []

    def step(self, state: RuleState) -> Origin | None:
        """Take one step; return the origin of the record that was written, if any."""
        chance = self.rng.random()
        if self.compacts and self.rng.random() < 0.05 and len(self.visible) > 1:
            # never the last one: it is the newest of its key
            self.visible.pop(self.rng.randrange(len(self.visible) - 1))
        if not self.attempts or chance < 0.02:
            self._plan(state)
        attempt = self.rng.choice(self.attempts[-3:])
        # the attempt fails, or Spark considers it lost: the task restarts, and the old attempt may
        # still write
        if not attempt.straggler and chance < 0.1:
            self._start(attempt.epoch, attempt.begin)
            attempt.straggler = True
        elif not attempt.straggler and not attempt.lost and attempt.sequence > 0 and chance < 0.35:
            self._start(attempt.epoch, attempt.position)
            attempt.straggler = True
        elif (offset := self._find_visible(attempt.position)) is not None:
            attempt.position = offset + 1
            attempt.sequence += 1
            if chance < 0.97:
                return make_origin(offset, attempt.epoch, attempt.number, attempt.sequence - 1)
            attempt.lost = True
        return None

    def _find_visible(self, begin: int) -> int | None:
        return next((offset for offset in self.visible if offset >= begin), None)

    def _start(self, epoch: int, begin: int) -> None:
        self.attempts.append(TaskAttempt(epoch, len(self.attempts) + 1, begin, begin))

    def _plan(self, state: RuleState) -> None:
        """Start a run above the committed epoch; its epoch may equal that of a run that wrote
        nothing.
        """
        self._start(state.epoch + self.rng.randint(1, 2), state.frontier + 1)
