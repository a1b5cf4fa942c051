"""A process that crashes is restarted, and the copy is right: tests, fault runs and the bench find
it in the log, and this tests how they do.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.harness.kafka import ROOT
from tests.harness.service import LIBRDKAFKA_ABORT, Service
from tools.bench.contenders import RESTARTED

SAID = '"%s ended (%s); it restarts in %.1f s"'


@pytest.mark.parametrize(
    ("ended_by", "is_crash"), [("SIGABRT", True), ("SIGSEGV", True), ("SIGKILL", False)]
)
def test_a_crash_is_told_from_a_kill(tmp_path: Path, ended_by: str, is_crash: bool) -> None:
    """By the supervisor's own message."""
    assert SAID in (ROOT / "reo" / "service" / "supervisor.py").read_text()
    line = SAID.strip('"') % ("deduplicator-0", signal.Signals[ended_by].name, 0.2)
    (tmp_path / "log").write_text(f"2026-01-01T00:00:00.000+00:00 WARNING reo: {line}\n")
    assert bool(Service(tmp_path, {}, ()).crashes) == is_crash
    assert RESTARTED in line


def test_an_abort_of_librdkafka_is_told_from_others(tmp_path: Path) -> None:
    """By what it says: it is left out, and the next crash counts all the same."""
    line = SAID.strip('"') % ("deduplicator-0", "SIGABRT", 0.2)
    abort = f"python: rdkafka_queue.h:1086: {LIBRDKAFKA_ABORT}.\nFatal Python error: Aborted\n"
    log = tmp_path / "log"
    log.write_text(f"{abort}{line}\n")
    service = Service(tmp_path, {}, ())
    assert service.crashes == []
    log.write_text(f"{abort}{line}\nand so on\n{line}\n")
    assert len(service.crashes) == 1
