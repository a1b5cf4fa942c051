"""Limits of waiting that do not measure the machine.

A limit ends a test that waits for what never comes. How long things take depends on what else runs:
with twenty runnable threads on two processors, each gets a tenth of a processor. So a limit counts
the processor time that one thread could have had: a second in which `r` threads are runnable on `p`
processors counts as `p / r` seconds, and at most as one (proc(5), /proc/loadavg). On an idle
machine that is the clock. A machine, or a process, that stands still does nothing meanwhile: the
time between two questions counts as STANDSTILL_S at most.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

Value = TypeVar("Value")
STEP_S = 1.0
STANDSTILL_S = 10.0


def read_runnable_threads() -> int:
    """How many threads run or wait for a processor now, this one included."""
    return max(1, int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0]))


class Limit:
    """A limit in seconds of a fair share of the processors."""

    def __init__(self, seconds: float) -> None:
        self.left_s = seconds
        self.counted_at = time.monotonic()

    def is_over(self) -> bool:
        """Whether the time is over; to be asked at least every second or so."""
        now = time.monotonic()
        share = min(1.0, len(os.sched_getaffinity(0)) / read_runnable_threads())
        self.left_s -= min(now - self.counted_at, STANDSTILL_S) * share
        self.counted_at = now
        return self.left_s <= 0


def wait(process: subprocess.Popen[Any], timeout_s: float) -> int:
    """Wait until a process ends; subprocess.TimeoutExpired after its fair share of `timeout_s`."""
    return _repeat(lambda: process.wait(STEP_S), timeout_s)


def communicate(process: subprocess.Popen[Any], timeout_s: float) -> tuple[Any, Any]:
    """The same, with what the process has written on its pipes."""
    return _repeat(lambda: process.communicate(timeout=STEP_S), timeout_s)


def _repeat(wait_a_step: Callable[[], Value], timeout_s: float) -> Value:
    limit = Limit(timeout_s)
    while True:
        try:
            return wait_a_step()
        except subprocess.TimeoutExpired as waited:
            if limit.is_over():
                raise subprocess.TimeoutExpired(waited.cmd, timeout_s) from None


def run(
    command: Sequence[str | os.PathLike[str]],
    *,
    timeout_s: float,
    check: bool = False,
    capture_output: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """As subprocess.run: a process that takes longer is killed."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **options) as process:
        try:
            output, errors = communicate(process, timeout_s)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, output, errors)
    if check:
        done.check_returncode()
    return done
