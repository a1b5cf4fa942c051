"""Ctrl-C ends a command at once, with exit code 130, also while a client waits for a cluster that
does not answer. So does `reo … | head`, with 141.

Python raises KeyboardInterrupt only when a call of librdkafka has returned, after its timeout. The
signal itself arrives at once (signal.set_wakeup_fd): the command may end by itself within GRACE_S,
then a thread ends the process.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

INTERRUPTED = 130
"""The exit code of a shell for a process that SIGINT has ended: 128 and the signal's number."""
OUTPUT_CLOSED = 141
"""The same for SIGPIPE, which Python ignores: nobody reads the output any more."""
GRACE_S = 1.0
_last_words: list[Callable[[], str]] = []
_is_reported = threading.Event()
_report_lock = threading.Lock()
"""Held while the message is printed: the thread that ends the process waits for it."""
_is_normal_end = threading.Event()


def install_handler(command: str) -> Callable[[], bool]:
    """Handle SIGINT; returns a function that tells whether it came: KeyboardInterrupt in a client's
    callback can become another exception.
    """
    received: list[int] = []

    def on_signal(number: int, frame: FrameType | None) -> None:
        received.append(number)
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, on_signal)
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    threading.Thread(
        target=_exit_after_signal, args=(read_end, command), name="interrupt", daemon=True
    ).start()
    return lambda: bool(received)


def set_normal_end() -> None:
    """From now on Ctrl-C is how the user ends the command: exit code 0, without a message."""
    _is_normal_end.set()


def set_last_words(describe: Callable[[], str]) -> None:
    """What a command says last, however it ends; an empty text is nothing."""
    _last_words.append(describe)


def print_last_words() -> None:
    """On standard error, behind the error of the command."""
    for describe in _last_words:
        if text := describe():
            print(text, file=sys.stderr, flush=True)


def report_interrupt(command: str = "") -> int:
    """Print the message once; returns the exit code."""
    if _is_normal_end.is_set():
        return 0
    with _report_lock:
        if not _is_reported.is_set():
            _is_reported.set()
            print(f"reo {command}".rstrip() + ": interrupted", file=sys.stderr, flush=True)
            print_last_words()
    return INTERRUPTED


def is_output_closed() -> bool:
    """Whether standard output is a pipe that nobody reads from: a broken pipe may be another
    one.
    """
    poll = select.poll()
    poll.register(sys.stdout.fileno(), select.POLLOUT)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _exit_after_signal(pipe: int, command: str) -> None:
    while os.read(pipe, 1)[0] != signal.SIGINT:
        pass
    time.sleep(GRACE_S)
    os._exit(report_interrupt(command))
