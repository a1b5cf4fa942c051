"""When a worker looks for partitions that nobody has: after the start and after each assignment,
until there are none. `tests/e2e/test_start.py` has the story on a real broker.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from common import clock
from deduplicator.worker import CHECK_INTERVAL_S, UnassignedPartitions

NONE: list[str] = []


class Group:
    """A worker's group, which answers with `unassigned`; what was asked of it, with the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr(clock, "monotonic", lambda: self.now_s)
        self.unassigned: list[str] | None = NONE
        self.asked_at: list[float] = []
        self.joined_at: list[float] = []
        self.intermediate = SimpleNamespace(
            is_member=True,
            assignments=0,
            join_group=lambda: self.joined_at.append(self.now_s),
        )
        self.check = UnassignedPartitions(
            cast(Any, SimpleNamespace(find_unassigned=self.find_unassigned)),
            cast(Any, self.intermediate),
        )

    def find_unassigned(self) -> list[str] | None:
        """As `PartitionStarter`."""
        self.asked_at.append(self.now_s)
        return self.unassigned

    def run_until(self, end_s: float) -> None:
        """Housekeeping, once a second."""
        while self.now_s < end_s:
            self.now_s += 1
            self.check.check()


def test_it_asks_once_after_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is unassigned: it does not ask again."""
    group = Group(monkeypatch)
    group.run_until(150)
    assert (group.asked_at, group.joined_at) == ([100 + CHECK_INTERVAL_S], [])


def test_it_asks_again_after_an_assignment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that had lost its session gets what it had, and a partition was added meanwhile: it
    joins again, and asks until there is none.
    """
    group = Group(monkeypatch)
    group.run_until(120)
    group.intermediate.assignments += 1
    group.unassigned = ["orders-1"]
    group.run_until(127)
    assert group.joined_at == [121 + CHECK_INTERVAL_S]
    group.intermediate.assignments += 1
    group.unassigned = NONE
    group.run_until(160)
    assert (len(group.asked_at), len(group.joined_at)) == (3, 1)


def test_it_asks_again_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group is rebalancing: every CHECK_INTERVAL_S."""
    group = Group(monkeypatch)
    group.unassigned = None
    group.run_until(120)
    assert (group.asked_at, group.joined_at) == ([105, 110, 115, 120], [])
