"""What the service's log says of its work, from the figures of /status and /metrics."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter

from common import clock
from common.route_states import EXCEPT_HALTED
from common.settings import load
from reo.service.progress_log import BEHIND_S, CHECK_INTERVAL_S, ProgressLog
from tests.unit.common.settings.test_settings import GOOD

INTERVAL_S = 60


class Service:
    """A service of these stages whose figures a test sets; its clock goes on by `pass_s`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *stages: str, interval_s: int) -> None:
        self.now = 0.0
        self.lag: dict[str, Any] = {"records": None, "seconds": None}
        self.is_ready = True
        self.halted: dict[str, Any] = {}
        registry = CollectorRegistry()
        labels = ("stage", "topic", "partition")
        self.out = Counter("reo_records_out", "Written.", labels, registry=registry)
        self.read = Counter("reo_records_in", "Read.", labels, registry=registry)
        monkeypatch.setattr(clock, "monotonic", lambda: self.now)
        self.log = ProgressLog(
            load(GOOD | {"REO_LOG_PROGRESS_INTERVAL_S": str(interval_s)}),
            stages,
            registry,
            lambda: {
                "lag": dict.fromkeys(("stage_one", "stage_two", "both"), self.lag),
                "ready": self.is_ready,
                "halted": self.halted,
            },
        )

    def pass_s(self, seconds: float) -> None:
        """Time passes, and the supervisor's loop turns."""
        self.now += seconds
        self.log.update()


@pytest.fixture(autouse=True)
def _at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")


def test_a_copy_says_when_it_has_caught_up_and_then_how_it_goes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, when a ready service has nothing left to copy; again only when it was far behind."""
    service = Service(monkeypatch, "deduplicator", "replicator", interval_s=INTERVAL_S)
    service.pass_s(CHECK_INTERVAL_S)
    service.lag, service.is_ready = {"records": 0, "seconds": 0.0}, False
    service.pass_s(CHECK_INTERVAL_S)
    assert caplog.messages == [], "what waits is not known, or a stage does not work"
    service.is_ready = True
    service.out.labels("deduplicator", "copy", "0").inc(40)
    service.out.labels("deduplicator", "copy", "1").inc(20)
    service.out.labels("replicator", "copy-proxy", "0").inc(3)
    service.pass_s(CHECK_INTERVAL_S)
    service.pass_s(CHECK_INTERVAL_S)
    service.out.labels("deduplicator", "copy", "0").inc(120)
    service.lag = {"records": 7, "seconds": 0.3}
    service.pass_s(INTERVAL_S - 1)
    service.lag = {"records": 900, "seconds": BEHIND_S + 1}
    service.pass_s(INTERVAL_S)
    service.lag, service.halted = {"records": 0, "seconds": 0.0}, {"orders": {"kind": "paused"}}
    service.pass_s(CHECK_INTERVAL_S)
    done = "records copied since the start,"
    assert caplog.messages == [
        f"caught up: 60 {done} 20 per second since the last line; nothing waits",
        f"180 {done} 2 per second since the last line; 7 wait, the first for 0.3 s",
        f"180 {done} 0 per second since the last line; 900 wait, the first for 11.0 s",
        f"caught up: 180 {done} 0 per second since the last line; nothing waits{EXCEPT_HALTED}",
    ]


def test_a_stage_that_runs_alone_says_what_it_has_done(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Stage one reads; what waits can be unknown."""
    service = Service(monkeypatch, "replicator", interval_s=INTERVAL_S)
    service.read.labels("replicator", "orders", "0").inc(120)
    service.pass_s(INTERVAL_S)
    (line,) = caplog.messages
    assert line.startswith("120 records read since the start, 2 per second since the last line;")
    assert line.endswith("what waits is not known now")


def test_no_interval_is_no_periodic_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """That it has caught up is said all the same, and so is the number at the end."""
    service = Service(monkeypatch, "deduplicator", "replicator", interval_s=0)
    service.lag = {"records": 9, "seconds": 99.0}
    service.pass_s(100_000)
    assert caplog.messages == []
    service.lag = {"records": 0, "seconds": 0.0}
    service.out.labels("deduplicator", "copy", "0").inc(9)
    service.pass_s(CHECK_INTERVAL_S)
    service.pass_s(100_000)
    service.log.log_end()
    caught_up, end = caplog.messages
    assert caught_up.startswith("caught up: 9 records copied")
    assert end == "everything that existed at the start is copied: 9 records by this service"
