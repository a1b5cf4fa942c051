"""A bound on each call of a user's function, which may be as slow as it likes as long as it comes to an end.

Each call is a sign of life of its own. One that does not return is ended from outside by a signal, after CALL_S: it raises TimeoutError where it stands, as
if the function had raised it, so that the record is named. (The watchdog would kill the process, which begins again with the same record, for ever.)
A function that catches everything is not stopped by this, nor is one that never comes back from C.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

CALL_S = 20.0
"""Far below what the watchdog allows (`reo.health.SILENT_S`)."""
LOOK_S = 0.5
Argument = TypeVar("Argument")
Answer = TypeVar("Answer")


class CallLimit:
    """`with limit:` around many calls. Only a main thread can be interrupted; elsewhere there is no bound."""

    def __init__(self, alive: Callable[[], None] = lambda: None, most_s: float = CALL_S, clock: Callable[[], float] = time.monotonic) -> None:
        self.alive = alive
        self.most_s = most_s
        self.clock = clock
        self.began = math.inf

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGALRM, self._look)
            signal.setitimer(signal.ITIMER_REAL, LOOK_S, LOOK_S)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.setitimer(signal.ITIMER_REAL, 0)

    def call(self, function: Callable[[Argument], Answer], argument: Argument) -> Answer:
        """Call it; TimeoutError when it takes too long."""
        self.alive()
        self.began = self.clock()
        try:
            return function(argument)
        finally:
            self.began = math.inf

    def _look(self, *_: object) -> None:
        if self.clock() - self.began > self.most_s:
            raise TimeoutError(f"it has not returned within {self.most_s:g} s")
