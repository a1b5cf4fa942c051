"""A clock that a test moves."""

from __future__ import annotations

import pytest

from common import clock


class Clock:
    """Stands where it is put, in seconds."""

    now = 1_700_000_000.0

    def __call__(self) -> float:
        """Unix time."""
        return self.now


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """In the place of the real clock, for one test."""
    still = Clock()
    monkeypatch.setattr(clock, "time", still)
    monkeypatch.setattr(clock, "monotonic", still)
    return still
