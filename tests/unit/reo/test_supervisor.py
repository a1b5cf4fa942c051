"""What the service's own last line is when one of its processes ends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.logs import LineFormatter
from common.settings import load
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


def test_the_last_line_is_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As the process has said it, after the others have been stopped: the tail of a container's log
    shows why. /status has it too. What the others waited for is in the log before.
    """
    (tmp_path / "some_stage.py").write_text(STAGE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setitem(child.MODULES, "deduplicator", "some_stage")
    monkeypatch.setattr(startup, "prepare_clusters", lambda *_: {})
    monkeypatch.setattr(supervisor, "WATCHDOG_INTERVAL_S", 0.0)
    monkeypatch.setattr(waiting_log, "LONG_S", 0.0)
    settings = load(GOOD | {"REO_METRICS_PORT": str(free_port()), "REO_DEDUPLICATOR_WORKERS": "2"})
    service = supervisor.Supervisor(settings, ("deduplicator",), lambda: False)
    assert service.run() == 22
    line = LineFormatter("reo", as_json=False).format(caplog.records[-1])
    reason = "FrontierLost: orders-0 has records, but no frontier"
    assert line.endswith(f" ERROR   reo: {reason} [error=FrontierLost exit_code=22]")
    assert service.last_error is not None
    assert service.last_error["message"].endswith(f" (exit code 22): {reason}")
    assert "deduplicator 1 has not worked for 0 s: it waits for its start" in caplog.messages
