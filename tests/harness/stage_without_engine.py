"""Stage one's control without a JVM: plans, and what watches a run that nobody carries out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from common.settings import Settings
from replicator.runs.run import Plan, Query
from replicator.runs.watch import Watch
from replicator.stage import Stage

NONE_HALTED = cast(
    Any,
    SimpleNamespace(
        topics=frozenset(), halted={}, add=lambda _: None, report=lambda: None, close=lambda: None
    ),
)
"""In place of `common.route_states.HaltedRoutes`: no route is paused."""


class NoEngine:
    """Starts for ever."""

    def count_slots(self) -> int | None:
        """None yet."""
        return None

    def start(self, plan: Plan) -> Query:
        """Nothing is started."""
        raise AssertionError(plan)

    def close(self) -> None:
        """There is nothing to end."""


def create_stage(settings: Settings) -> Stage:
    """Stage one's process, as it is before its JVM has started."""
    return Stage(settings, lambda: False, NoEngine(), 1)


def create_watch(stage: Stage, plan: Plan) -> Watch:
    """What follows the run with this plan."""
    return Watch(plan.settings, stage.clients, plan, stage.liveness.lag)
