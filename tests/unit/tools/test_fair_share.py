"""Limits of waiting: they end what never comes, and do not measure the machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools.demo import fair_share

SLEEPS = [sys.executable, "-c", "import time; time.sleep(60)"]
SPEAKS = [sys.executable, "-c", "print('x' * 100_000)"]


@pytest.mark.parametrize(
    ("runnable", "processors", "takes_s"), [(1, 2, 10), (4, 2, 20), (5, 1, 50)]
)
def test_a_second_counts_as_the_share_of_a_thread(
    monkeypatch: pytest.MonkeyPatch, runnable: int, processors: int, takes_s: int
) -> None:
    """Ten seconds are the clock's on an idle machine, and more where threads wait for it."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(fair_share, "read_runnable_threads", lambda: runnable)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)))
    limit = fair_share.Limit(10)
    while not limit.is_over():
        now[0] += 0.5
    assert now[0] == pytest.approx(100 + takes_s, abs=0.5)


def test_what_is_runnable_is_read() -> None:
    """It is at least the thread that asks, and at most all threads."""
    total = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    assert 1 <= fair_share.read_runnable_threads() <= 2 * total


def test_a_process_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """And none remains."""
    monkeypatch.setattr(fair_share, "STEP_S", 0.01)
    started: list[subprocess.Popen[str]] = []
    real = subprocess.Popen

    def start(*words: object, **options: object) -> subprocess.Popen[str]:
        started.append(real(*words, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(subprocess.TimeoutExpired):
        fair_share.run(SLEEPS, timeout_s=0.05)
    assert started[0].poll() is not None


def test_output_and_exit_code_are_those_of_the_process() -> None:
    """More than a pipe takes; a code other than 0 is an error where that was asked for."""
    done = fair_share.run(SPEAKS, timeout_s=60, capture_output=True, text=True)
    assert (done.returncode, len(done.stdout), done.stderr) == (0, 100_001, "")
    with pytest.raises(subprocess.CalledProcessError):
        fair_share.run([sys.executable, "-c", "exit(3)"], timeout_s=60, check=True)
