"""Ctrl-C ends a command at once, with exit code 130, also while a client waits for a cluster that
does not answer. So do SIGTERM (143), as of `timeout`, and SIGHUP (129), of a terminal that is
closed; and `reo … | head`, with 141.

Python raises KeyboardInterrupt only when a call of librdkafka has returned, after its timeout. The
signal itself arrives at once (signal.set_wakeup_fd): the command may end by itself within GRACE_S,
then a thread ends the process.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SIGNALLED = 128
"""The exit code of a shell for a process that a signal has ended: this and the signal's number."""
OUTPUT_CLOSED = 141
"""The same for SIGPIPE, which Python ignores: nobody reads the output any more."""
GRACE_S = 1.0
REPORT_S = 10.0
"""How long the last words may take."""
_received: list[int] = []
"""The signals that have come."""
_last_words: list[Callable[[], str]] = []
_is_reported = threading.Event()
_report_lock = threading.Lock()
"""Held while the message is printed: the thread that ends the process waits for it."""
_is_normal_end = threading.Event()


def install_handler(command: str) -> Callable[[], bool]:
    """Handle the signals; returns a function that tells whether one came: KeyboardInterrupt in a
    client's callback can become another exception.
    """

    def on_signal(number: int, frame: FrameType | None) -> None:
        _received.append(number)
        if len(_received) == 1:  # another one would cut off what is said about the first
            signal.default_int_handler(number, frame)

    for number in SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup
            signal.signal(number, on_signal)
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    threading.Thread(
        target=_exit_after_signal, args=(read_end, command), name="interrupt", daemon=True
    ).start()
    return lambda: bool(_received)


def set_normal_end() -> None:
    """From now on a signal is how the user ends the command: exit code 0, without a message."""
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
            _end_logging()
            with suppress(OSError):  # the terminal may be gone
                print(f"reo {command}".rstrip() + ": interrupted", file=sys.stderr, flush=True)
                print_last_words()
    return SIGNALLED + (_received or [signal.SIGINT])[0]


def _end_logging() -> None:
    """Another thread of the command may go on for a moment, and be in the middle of a line."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115


def is_output_closed() -> bool:
    """Whether standard output is a pipe that nobody reads from: a broken pipe may be another
    one.
    """
    poll = select.poll()
    poll.register(sys.stdout.fileno(), select.POLLOUT)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _exit_after_signal(pipe: int, command: str) -> None:
    while (number := os.read(pipe, 1)[0]) not in SIGNALS:
        pass
    time.sleep(GRACE_S)
    # nobody may read standard error: then a print lasts for ever
    report = threading.Thread(target=report_interrupt, args=(command,), daemon=True)
    report.start()
    report.join(REPORT_S)
    os._exit(0 if _is_normal_end.is_set() else SIGNALLED + number)
