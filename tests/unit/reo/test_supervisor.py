"""What the service's own last line is when one of its processes ends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.logs import LineFormatter
from common.settings import load
from reo.service import child, startup
from reo.service.supervisor import Supervisor
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
    shows why. /status has it too.
    """
    (tmp_path / "some_stage.py").write_text(STAGE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setitem(child.MODULES, "deduplicator", "some_stage")
    monkeypatch.setattr(startup, "prepare_clusters", lambda *_: {})
    settings = load(GOOD | {"REO_METRICS_PORT": str(free_port()), "REO_DEDUPLICATOR_WORKERS": "2"})
    supervisor = Supervisor(settings, ("deduplicator",), lambda: False)
    assert supervisor.run() == 22
    line = LineFormatter("reo", as_json=False).format(caplog.records[-1])
    reason = "FrontierLost: orders-0 has records, but no frontier"
    assert line.endswith(f" ERROR   reo: {reason} [error=FrontierLost exit_code=22]")
    assert supervisor.last_error is not None
    assert supervisor.last_error["message"].endswith(f" (exit code 22): {reason}")
