"""Where the time of a test run went, and how a failed test is repeated alone: pytest prints both at
its end.

Most of a test's processor time is not pytest's own: brokers, Spark and the service are its child
processes. So each test is charged with what the whole process tree below its pytest process has
used meanwhile. Children of a killed supervisor become children of pytest (PR_SET_CHILD_SUBREAPER,
prctl(2)), so that their time is not lost from the sum.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PR_SET_CHILD_SUBREAPER = 36
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SHORT_S = 0.2
"""A test that took less started no process that is worth a look into /proc."""
ROWS = 15
PROPERTY = "cpu_s"


def tree_cpu_s(root: int) -> float:
    """Processor time of a process, its living descendants, and those of them that were waited
    for.
    """
    used, children, inherited = {}, defaultdict(list), []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it ended meanwhile
            process_id, parent, session = int(entry.name), int(fields[1]), int(fields[3])
            used[process_id] = sum(int(field) for field in fields[11:15])
            children[parent].append(process_id)
            # inherited: nobody else waits for it
            if fields[0] == "Z" and parent == root and session not in (process_id, os.getsid(0)):
                inherited.append(process_id)
    for process_id in inherited:
        os.waitpid(process_id, os.WNOHANG)
    total, ahead = 0, [root]
    while ahead:
        process_id = ahead.pop()
        total += used.get(process_id, 0)
        ahead += children[process_id]
    return total / TICKS_PER_S


class Meter:
    """Charges each test with the processor time of this process' tree since the test before it
    ended.
    """

    def __init__(self) -> None:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.last_s = tree_cpu_s(os.getpid())
        self.started = time.monotonic()

    def charge(self) -> float:
        """The processor seconds since the last call."""
        now = time.monotonic()
        if now - self.started < SHORT_S:
            return 0.0
        used_s, self.started = tree_cpu_s(os.getpid()), now
        charged_s, self.last_s = max(0.0, used_s - self.last_s), used_s
        return charged_s


METER = Meter()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """The report of a test's end carries its processor time, also from a pytest-xdist worker to the
    controller.
    """
    report: Any = yield
    if call.when == "teardown":
        report.user_properties.append((PROPERTY, METER.charge()))
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The files and tests that took most, and a command for each failed test."""
    wall_s: dict[str, float] = defaultdict(float)
    cpu_s: dict[str, float] = defaultdict(float)
    failed: dict[str, str] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                wall_s[report.nodeid] += report.duration
                cpu_s[report.nodeid] += (
                    dict(report.user_properties).get(PROPERTY, 0.0)
                    if report.when == "teardown"
                    else 0.0
                )
                if report.failed:
                    failed[report.nodeid] = "test-long" if "long" in report.keywords else "test"
    if not wall_s:
        return
    write = terminalreporter.write_line
    by_file: dict[str, list[str]] = defaultdict(list)
    for test in wall_s:
        by_file[test.partition("::")[0]].append(test)
    write(
        f"where the time went (seconds; all {len(wall_s)} tests: {sum(wall_s.values()):.0f} of"
        f" time, {sum(cpu_s.values()):.0f} of processor time):"
    )
    rows = [
        (sum(cpu_s[test] for test in tests), sum(wall_s[test] for test in tests), file)
        for file, tests in by_file.items()
    ]
    rows_of_tests = [(cpu_s[test], wall_s[test], test) for test in wall_s]
    for title, found in (("file", rows), ("test", rows_of_tests)):
        write(f"{'processor':>10} {'time':>8}  {title}")
        for cpu, wall, name in sorted(found, reverse=True)[:ROWS]:
            write(f"{cpu:10.1f} {wall:8.1f}  {name}")
    for test, target in failed.items():
        write(f"repeat alone: make {target} ARGS='-n 0 \"{test}\"'")
