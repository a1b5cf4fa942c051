"""What the service's log says of a process that has not worked for long."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from common import clock
from reo.service.waiting_log import LONG_S, WaitingLog

WORKER, STAGE_ONE = "deduplicator 0", "replicator 0"
GROUP, START = "waits for the group", "waits for its start"


class Service:
    """A service whose processes wait for what a test says; its clock goes on by `pass_s`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(clock, "monotonic", lambda: self.now)
        self.log = WaitingLog()

    def pass_s(self, seconds: float, waits: Mapping[str, str]) -> None:
        """For so long these processes do not work."""
        self.log.update(waits)
        self.now += seconds
        self.log.update(waits)


def test_a_long_wait_is_said_once_and_its_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With the reason; of each process; not what is over sooner."""
    caplog.set_level("INFO")
    service = Service(monkeypatch)
    service.pass_s(LONG_S - 1, {WORKER: GROUP, STAGE_ONE: START})
    service.pass_s(1, {WORKER: GROUP})
    service.pass_s(LONG_S, {WORKER: GROUP, STAGE_ONE: START})
    service.pass_s(1, {})
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", f"{WORKER} has not worked for 30 s: it {GROUP}"),
        ("WARNING", f"{STAGE_ONE} has not worked for 30 s: it {START}"),
        ("INFO", f"{WORKER} works again, after 60 s"),
        ("INFO", f"{STAGE_ONE} works again, after 30 s"),
    ]


def test_reasons_that_take_turns_are_one_wait(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The present one is said; another one only when it has lasted, too."""
    service = Service(monkeypatch)
    for _ in range(10):
        for why in (GROUP, START):
            service.pass_s(LONG_S / 3, {WORKER: why})
    assert caplog.messages == [f"{WORKER} has not worked for 30 s: it {GROUP}"]
    service.pass_s(LONG_S, {WORKER: START})
    assert caplog.messages[1:] == [f"{WORKER} has not worked for 230 s: it {START}"]
