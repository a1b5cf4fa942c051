"""Named points of the crash matrix, at which a process can be made to die or to freeze: how faults are tested at the very step.

`REO_DIE_AT=point:nth:file` kills the process with SIGKILL when it reaches that point for the nth time, once: the file, which is made
just before, says that it happened, and stops a restarted process from dying there again. Several, with semicolons between them, kill it at each
of these points in turn. `REO_FREEZE_AT` does the same with SIGSTOP, which makes a zombie: whoever wants it back sends SIGCONT. Unset, a point costs
nothing but a call per transaction or run, none per record.
"""

from __future__ import annotations

import os
import signal
from typing import Literal

from common import machine

VARIABLES = {"REO_DIE_AT": signal.SIGKILL, "REO_FREEZE_AT": signal.SIGSTOP}
Point = Literal[
    "two: started", "two: initialised", "two: frontier read", "two: first frontier made", "two: consumed", "two: decided", "two: begun", "two: written",
    "two: offsets sent", "two: committing", "two: committed", "two: partitions gone", "two: stopping",
    "one: started", "one: planned", "one: query started", "one: first written", "one: run ended", "one: drained",
]
COMMITTING_S = 0.002
"""How long after the commit was asked for "two: committing" kills: EndTxn is on its way, the answer is not here."""


class Armed:
    """What one of the variables asks for, in this process."""

    def __init__(self, text: str, with_signal: signal.Signals = signal.SIGKILL) -> None:
        self.point, nth, self.file = text.rsplit(":", 2)
        self.left = int(nth)
        self.signal = with_signal

    def reached(self, point: Point) -> bool:
        """Whether it has to happen at this point, now; leaves the proof."""
        if point != self.point or os.path.exists(self.file):  # noqa: PTH110  (nothing else is imported for a switched-off test)
            return False
        self.left -= 1
        if self.left > 0:
            return False
        with open(self.file, "x") as proof:  # noqa: PTH123
            proof.write(f"{point}, process {os.getpid()}\n")
        return True

    def strike(self) -> None:
        """Send the signal to this process."""
        os.kill(os.getpid(), self.signal)

    def strike_soon(self) -> None:
        """In a moment."""
        machine.sleep(COMMITTING_S)
        self.strike()


ARMED = tuple(Armed(text, with_signal) for variable, with_signal in VARIABLES.items() for text in os.environ.get(variable, "").split(";") if text)


def at(point: Point) -> None:
    """Die or freeze here, if this is the point that was asked for."""
    for armed in ARMED:
        if armed.point == point and armed.reached(point):
            armed.strike()


def soon_after(point: Point) -> None:
    """Die or freeze in a moment, in the middle of the call that follows."""
    for armed in ARMED:
        if armed.point == point and armed.reached(point):
            machine.background(armed.strike_soon, "strike")
