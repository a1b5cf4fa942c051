"""When the supervisor starts a child again, and when it kills one (`reo.service.restarts`)."""

from __future__ import annotations

import pytest

from common import clock
from common.errors import ClusterUnreachable, Fenced, FrontierLost
from common.liveness import SILENT_S, is_silent
from reo.service.restarts import (
    BACKOFF_FIRST_S,
    BACKOFF_MAX_S,
    BACKOFF_RESET_S,
    FENCED_MAX,
    FENCED_WINDOW_S,
    Restarts,
)


def test_a_backoff_doubles_until_the_child_has_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to its maximum; a child that has run for a minute begins with the first one again."""
    monkeypatch.setattr(clock, "monotonic", lambda: 100.0)
    monkeypatch.setattr(clock, "time", lambda: 1000.0)
    restarts = Restarts()
    waited = [restarts.start_later() for _ in range(10)]
    assert waited[:3] == [BACKOFF_FIRST_S, 2 * BACKOFF_FIRST_S, 4 * BACKOFF_FIRST_S]
    assert waited[-1] == BACKOFF_MAX_S
    assert restarts.start_at == 100.0 + BACKOFF_MAX_S
    restarts.on_running(1000.0 - BACKOFF_RESET_S)
    assert restarts.start_later() == BACKOFF_MAX_S
    restarts.on_running(1000.0 - BACKOFF_RESET_S - 1)
    assert restarts.start_later() == BACKOFF_FIRST_S


def test_an_outage_is_waited_for_and_a_stop_is_not() -> None:
    """And what is no code of ours, as that of a signal, is a restart."""
    restarts = Restarts()
    assert restarts.is_end_of_service(FrontierLost.exit_code)
    assert not restarts.is_end_of_service(ClusterUnreachable.exit_code)
    assert not any(map(restarts.is_end_of_service, (0, 1, -9)))


def test_a_child_that_is_fenced_again_and_again_ends_the_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another service has its name; once in a while, a pause of the machine is the reason."""
    now = [0.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    restarts = Restarts()
    for _ in range(FENCED_MAX):
        assert not restarts.is_end_of_service(Fenced.exit_code)
        now[0] += FENCED_WINDOW_S / (FENCED_MAX - 1)
    now[0] -= 1.0
    assert restarts.is_end_of_service(Fenced.exit_code)


def test_a_child_is_killed_when_its_last_heartbeat_is_too_old() -> None:
    """Not a moment sooner."""
    assert not is_silent(1000.0, 1000.0 + SILENT_S)
    assert is_silent(1000.0, 1000.1 + SILENT_S)
