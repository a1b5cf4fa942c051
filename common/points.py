"""Named points of the crash matrix, at which a process can be made to die: how faults are tested at the very step.

`REO_DIE_AT=point:nth:file` kills the process with SIGKILL when it reaches that point for the nth time, once: the file, which is made
just before, says that it happened, and stops a restarted process from dying there again. Unset, a point costs one comparison per
transaction or run, none per record.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Literal

VARIABLE = "REO_DIE_AT"
Point = Literal[
    "two: started", "two: initialised", "two: frontier read", "two: first frontier made", "two: consumed", "two: decided", "two: begun", "two: written",
    "two: offsets sent", "two: committing", "two: committed", "two: partitions gone", "two: stopping",
    "one: started", "one: planned", "one: query started", "one: first written", "one: run ended", "one: drained",
]
COMMITTING_S = 0.002
"""How long after the commit was asked for "two: committing" kills: EndTxn is on its way, the answer is not here."""


class Armed:
    """What REO_DIE_AT asks for, in this process."""

    def __init__(self, text: str) -> None:
        self.point, nth, self.file = text.rsplit(":", 2) if text else ("", "0", "")
        self.left = int(nth)

    def reached(self, point: Point) -> bool:
        """Whether the process has to die at this point, now; leaves the proof."""
        if point != self.point or os.path.exists(self.file):  # noqa: PTH110  (nothing else is imported for a switched-off test)
            return False
        self.left -= 1
        if self.left > 0:
            return False
        with open(self.file, "x") as proof:  # noqa: PTH123
            proof.write(f"{point}, process {os.getpid()}\n")
        return True


ARMED = Armed(os.environ.get(VARIABLE, ""))


def at(point: Point) -> None:
    """Die here, if this is the point that was asked for."""
    if ARMED.point == point and ARMED.reached(point):
        _die()


def soon_after(point: Point) -> None:
    """Die in a moment, in the middle of the call that follows."""
    if ARMED.point == point and ARMED.reached(point):
        threading.Timer(COMMITTING_S, _die).start()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
