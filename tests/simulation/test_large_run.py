"""A large run of the simulator: every partition ends, and nothing that the service does for each
partition grows with the number of partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from cProfile import Profile
from pstats import Stats
from typing import Any, cast

import pytest

from tests.harness.kafka import ROOT
from tools.simulator import run
from tools.simulator.plan import Plan
from tools.simulator.system import System

WORKERS = 8
RESTARTS_AT_S, RESTART_INTERVAL_S = 2.0, 0.8
SERVICE = tuple(
    f"{ROOT / package}/"
    for package in ("common", "deduplicator", "replicator", "tools/simulator/kafka")
)


class RareJudges(run.Judges):
    """Asked twice a second: after each step they would look at each partition."""

    next_at: float = 0.0

    def _is_due(self) -> bool:
        if self.schedule.now < self.next_at:
            return False
        self.next_at = self.schedule.now + 0.5
        return True

    def is_over(self) -> bool:
        """As the one of other runs."""
        return self._is_due() and super().is_over()

    def is_complete(self) -> bool:
        """As the one of other runs."""
        return self._is_due() and super().is_complete()


@pytest.fixture(autouse=True)
def rolling_restarts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each process is asked to stop, one after the other, while records flow; and is started
    again.
    """
    start_all = System.start_all

    def start_and_restart(system: System) -> None:
        start_all(system)
        for number, child in enumerate(system.children):
            system.schedule.call_later(
                RESTARTS_AT_S + number * RESTART_INTERVAL_S,
                lambda child=child: setattr(child, "is_stop_requested", True),
            )

    monkeypatch.setattr(System, "start_all", start_and_restart)
    monkeypatch.setattr(run, "Judges", RareJudges)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def count_calls(partitions: int, start: str) -> int:
    """Calls that the service's functions make in a run of so many partitions, and the clusters'
    to answer them.
    """
    profile = Profile()
    plan = Plan(
        seed=1,
        partitions=partitions,
        workers=WORKERS,
        records=2 * partitions,
        transaction_share=0.0,
        stop_at_end=False,
        clock_offsets_s=(0.0,) * 4,
        faults=(),
        start=start,
    )
    result = profile.runcall(run.run_plan, plan)
    assert (result.violation, result.end) == ("", "everything is copied")
    assert start == "latest" or result.compared >= 2 * partitions
    for name in ("stage one 0", *(f"worker {number}" for number in range(WORKERS))):
        assert any(f"{name} ends: done" in line for line in result.story), f"{name} went on"
    callers_of = cast(Any, Stats(profile)).stats.values()
    return sum(
        calls[1]
        for *_, callers in callers_of
        for (file, _, _), calls in callers.items()
        if file.startswith(SERVICE)
    )


@pytest.mark.long
@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_thousand_partitions_and_rolling_restarts(start: str) -> None:
    """With 8 workers, each process restarted once. What is quadratic grows by 16."""
    counts = {partitions: count_calls(partitions, start) for partitions in (250, 500, 1000)}
    print(f"calls of the service: {counts}")
    assert counts[1000] < 6 * counts[250]
