"""What Spark can write to one intermediate partition after failures: task attempts that were
abandoned but still write, lost records, overlapping runs.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from common.frontier import RuleState
from common.origin import Origin

IDENTITY = "0123456789abcdef"


def make_origin(source_offset: int, epoch: int = 1, attempt: int = 1, sequence: int = 0) -> Origin:
    """One record's origin; the fields that the rule ignores are fixed."""
    return Origin(0, source_offset, 1, 0, epoch, attempt, sequence, IDENTITY)


@dataclass
class TaskAttempt:
    """A task attempt that writes a batch: its first and next position in the visible offsets. A
    straggler was abandoned by Spark and still writes.
    """

    epoch: int
    batch: int
    first: int
    next: int
    lost: bool = False
    straggler: bool = False


class StageOne:
    """All that Spark can do: a batch starts where the batch before it was completely written, and a
    run starts at a committed frontier.
    """

    def __init__(self, visible: list[int], rng: random.Random) -> None:
        self.visible = visible
        self.rng = rng
        self.batches = 0
        self.attempts: list[TaskAttempt] = []

    def step(self, state: RuleState) -> Origin | None:
        """Take one step; return the origin of the record that was written, if any."""
        chance = self.rng.random()
        if not self.attempts or chance < 0.02:
            self._plan(state)
        attempt = self.rng.choice(self.attempts[-3:])
        # the attempt fails, or Spark considers it lost: the task restarts, and the old attempt may
        # still write
        if not attempt.straggler and chance < 0.1:
            self.attempts.append(replace(attempt, next=attempt.first, lost=False))
            attempt.straggler = True
        elif (
            not attempt.straggler
            and not attempt.lost
            and attempt.next > attempt.first
            and chance < 0.35
        ):
            self.batches += 1
            self.attempts.append(replace(attempt, batch=self.batches, first=attempt.next))
            attempt.straggler = True
        elif attempt.next < len(self.visible):
            attempt.next += 1
            if chance < 0.97:
                return make_origin(
                    self.visible[attempt.next - 1],
                    attempt.epoch,
                    attempt.batch,
                    attempt.next - 1 - attempt.first,
                )
            attempt.lost = True
        return None

    def _plan(self, state: RuleState) -> None:
        """Start a run above the committed epoch; its epoch may equal that of a run that wrote
        nothing.
        """
        self.batches += 1
        begin = sum(offset <= state.frontier for offset in self.visible)
        self.attempts.append(
            TaskAttempt(state.epoch + self.rng.randint(1, 2), self.batches, begin, begin)
        )
