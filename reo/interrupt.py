"""Ctrl-C ends a command at once, with exit code 130, also while a client waits for a silent cluster.

Python raises KeyboardInterrupt when the call that the main thread is in has returned, and a call of librdkafka returns when its time is over. The signal itself
arrives at once (signal.set_wakeup_fd): after GRACE_S, in which the command may end as it likes, the process is ended.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

INTERRUPTED = 130
"""What a shell says of a process that SIGINT has ended: 128 and the signal's number."""
GRACE_S = 1.0
_said = threading.Event()


def ends_at_once(command: str) -> Callable[[], bool]:
    """From now on; returns what says whether it was interrupted. Inside of a client's callback KeyboardInterrupt becomes another exception on its way."""
    seen: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        signal.default_int_handler(number, frame)
    signal.signal(signal.SIGINT, handle)
    ours, its = os.pipe()
    os.set_blocking(its, False)
    signal.set_wakeup_fd(its, warn_on_full_buffer=False)
    threading.Thread(target=_wait, args=(ours, command), name="interrupt", daemon=True).start()
    return lambda: bool(seen)


def said(command: str) -> int:
    """The message, and the exit code."""
    if not _said.is_set():
        _said.set()
        print(f"reo {command}: interrupted", file=sys.stderr, flush=True)
    return INTERRUPTED


def _wait(pipe: int, command: str) -> None:
    while os.read(pipe, 1)[0] != signal.SIGINT:
        pass
    time.sleep(GRACE_S)
    os._exit(said(command))
