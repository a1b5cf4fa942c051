"""Interrupts a call of a user's function that does not return.

Each call counts as a heartbeat. After CALL_TIMEOUT_S a signal interrupts it: TimeoutError is raised
inside the function, as if the function had raised it, so that the record is named. (The watchdog
would kill the process, which would begin again with the same record, for ever.) This does not stop
a function that catches every exception, nor one that never returns from C.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable
from typing import TypeVar

CALL_TIMEOUT_S = 20.0
"""Far below the watchdog's limit (`common.liveness.SILENT_S`)."""
CHECK_INTERVAL_S = 0.5
Argument = TypeVar("Argument")
Answer = TypeVar("Answer")


class CallLimit:
    """`with limit:` around many calls; without a timeout outside the main thread."""

    def __init__(
        self, beat: Callable[[], None] = lambda: None, timeout_s: float = CALL_TIMEOUT_S
    ) -> None:
        self.beat = beat
        self.timeout_s = timeout_s
        self.began_at = math.inf

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGALRM, self._on_alarm)
            signal.setitimer(signal.ITIMER_REAL, CHECK_INTERVAL_S, CHECK_INTERVAL_S)

    def __exit__(self, *_: object) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.setitimer(signal.ITIMER_REAL, 0)

    def call(self, function: Callable[[Argument], Answer], argument: Argument) -> Answer:
        """Call it; TimeoutError when it takes too long."""
        self.beat()
        self.began_at = time.monotonic()
        try:
            return function(argument)
        finally:
            self.began_at = math.inf

    def _on_alarm(self, *_: object) -> None:
        if time.monotonic() - self.began_at > self.timeout_s:
            raise TimeoutError(f"it has not returned within {self.timeout_s:g} s")
