"""What the service's own last line is when one of its processes ends it, and what becomes of it
where the system gives it no folder and no process.
"""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from common.errors import StageFailed
from common.logs import LineFormatter
from common.settings import Settings, load
from reo.service import child, startup, supervisor, waiting_log
from tests.unit.common.settings.test_settings import GOOD
from tools.demo.broker import free_port

STAGE = """
import sys, time
from common import stage_process
from common.errors import FrontierLost

def work(settings, stopping):
    if sys.argv[1] == "0":
        raise FrontierLost("orders-0 has records, but no frontier")
    while not stopping():
        time.sleep(0.01)

sys.exit(stage_process.run("deduplicator", work))
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Of a service whose first worker of two ends it with 22."""
    (tmp_path / "some_stage.py").write_text(STAGE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setitem(child.MODULES, "deduplicator", "some_stage")
    monkeypatch.setattr(startup, "prepare_clusters", lambda *_: {})
    return load(GOOD | {"REO_METRICS_PORT": str(free_port()), "REO_DEDUPLICATOR_WORKERS": "2"})


def test_the_last_line_is_the_reason(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As the process has said it, after the others have been stopped: the tail of a container's log
    shows why. /status has it too. What the others waited for is in the log before.
    """
    monkeypatch.setattr(supervisor, "WATCHDOG_INTERVAL_S", 0.0)
    monkeypatch.setattr(waiting_log, "LONG_S", 0.0)
    service = supervisor.Supervisor(settings, ("deduplicator",), lambda: False)
    assert service.run() == 22
    line = LineFormatter("reo", as_json=False).format(caplog.records[-1])
    reason = "FrontierLost: orders-0 has records, but no frontier"
    assert line.endswith(f" ERROR   reo: {reason} [error=FrontierLost exit_code=22]")
    assert service.last_error is not None
    assert service.last_error["message"].endswith(f" (exit code 22): {reason}")
    assert "deduplicator 1 has not worked for 0 s: it waits for its start" in caplog.messages


def test_a_process_that_cannot_be_started_is_tried_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk is full, there are too many processes, or too many threads to read its output: the
    service waits as for a process that has ended.
    """
    failures: list[Exception] = [
        OSError(code, os.strerror(code)) for code in (errno.ENOSPC, errno.EAGAIN)
    ]
    failures.append(RuntimeError("can't start new thread"))
    start, forward = child.Child.start, child.forward_output

    def start_or_fail(*arguments: Any) -> Any:
        if failures and isinstance(failures[0], OSError):
            raise failures.pop(0)
        return start(*arguments)

    def forward_or_fail(*arguments: Any) -> Any:
        if failures:
            raise failures.pop(0)
        return forward(*arguments)

    monkeypatch.setattr(child.Child, "start", start_or_fail)
    monkeypatch.setattr(supervisor, "forward_output", forward_or_fail)
    assert supervisor.Supervisor(settings, ("deduplicator",), lambda: False).run() == 22
    lines = [line for line in caplog.messages if "cannot be started" in line]
    assert [line.partition("; it is tried again in ")[0] for line in lines] == [
        "deduplicator-0 cannot be started ([Errno 28] No space left on device)",
        "deduplicator-1 cannot be started ([Errno 11] Resource temporarily unavailable)",
        "deduplicator-0 cannot be started (can't start new thread)",
    ]


def test_no_temporary_folder_is_one_error(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container with a read-only root and nothing mounted."""
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")
    with pytest.raises(StageFailed, match=r"^TMPDIR .*--tmpfs /tmp:exec"):
        supervisor.Supervisor(settings, ("deduplicator",), lambda: False)
