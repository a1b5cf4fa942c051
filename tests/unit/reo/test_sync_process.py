"""What the service keeps alike beside stage two: rounds at an interval, and what their log says."""

from __future__ import annotations

import logging

import pytest

from common import clock
from common.errors import ClusterUnreachable
from reo.service.sync_process import Rounds


def test_rounds_go_on_after_an_error_and_log_what_changes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One round an interval; an error is a warning, and the next round is made as if nothing had
    happened; the same text is logged once.
    """
    made = 0

    def do() -> tuple[str, bool]:
        nonlocal made
        made += 1
        if made == 3:
            raise ClusterUnreachable("the source cluster does not answer")
        return "kept alike", True

    rounds = Rounds("topic configurations", 10, do)
    caplog.set_level(logging.INFO)
    for now_s in (100.0, 109.9, 110.0, 115.0, 120.0, 130.0):
        monkeypatch.setattr(clock, "monotonic", lambda now_s=now_s: now_s)
        rounds.do_when_due()
    assert made == 4
    kept = ("INFO", "topic configurations: kept alike")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        kept,
        (
            "WARNING",
            "topic configurations: ClusterUnreachable: the source cluster does not answer",
        ),
        kept,
    ]
