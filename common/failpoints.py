"""Failpoints: named steps at which a test can kill or freeze a process, to test a fault at exactly
that step.

`REO_DIE_AT=point:nth:file` kills the process with SIGKILL when it reaches that failpoint for the
nth time, once. The file is created just before: it proves that the kill happened, and a restarted
process does not die there again. Several failpoints, separated by semicolons, kill it at each of
them in turn. `REO_FREEZE_AT` does the same with SIGSTOP, which makes a zombie; SIGCONT lets it
continue. When neither is set, a failpoint costs one call per transaction or run, and nothing per
record.
"""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import Literal

from common import clock

VARIABLES = {"REO_DIE_AT": signal.SIGKILL, "REO_FREEZE_AT": signal.SIGSTOP}
Failpoint = Literal[
    "two: started",
    "two: initialised",
    "two: frontier read",
    "two: first frontier made",
    "two: consumed",
    "two: decided",
    "two: begun",
    "two: written",
    "two: offsets sent",
    "two: committing",
    "two: committed",
    "two: partitions gone",
    "two: stopping",
    "one: started",
    "one: ready",
    "one: planned",
    "one: query started",
    "one: first written",
    "one: run ended",
    "one: drained",
]
COMMITTING_S = 0.002
"""When "two: committing" kills, after the request: EndTxn is sent, and not answered."""


class ArmedFailpoint:
    """One failpoint that a variable names, in this process."""

    def __init__(self, text: str, with_signal: signal.Signals = signal.SIGKILL) -> None:
        self.point, nth, self.file = text.rsplit(":", 2)
        self.hits_left = int(nth)
        self.signal = with_signal

    def should_trigger(self, point: Failpoint) -> bool:
        """Whether the signal is due at this failpoint now; creates the proof then."""
        # no import for what is off in production
        if point != self.point or os.path.exists(self.file):  # noqa: PTH110
            return False
        self.hits_left -= 1
        if self.hits_left > 0:
            return False
        with open(self.file, "x", encoding="utf-8") as proof:  # noqa: PTH123
            proof.write(f"{point}, process {os.getpid()}\n")
        return True

    def send_signal(self, after_s: float = 0.0) -> None:
        """Send the signal to this process."""
        clock.sleep(after_s)
        os.kill(os.getpid(), self.signal)


ARMED = tuple(
    ArmedFailpoint(text, with_signal)
    for variable, with_signal in VARIABLES.items()
    for text in os.environ.get(variable, "").split(";")
    if text
)


def hit(point: Failpoint) -> None:
    """Die or freeze here, if a variable names this failpoint."""
    for armed in ARMED:
        if armed.should_trigger(point):
            armed.send_signal()


def hit_soon(point: Failpoint) -> None:
    """Die or freeze after COMMITTING_S, in the middle of the call that follows."""
    for armed in ARMED:
        if armed.should_trigger(point):
            clock.start_thread(partial(armed.send_signal, COMMITTING_S), "failpoint")
