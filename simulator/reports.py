"""What the service says of itself: whether it is ready, and how much there is to copy. Both have to be true, also while a cluster is away.

A process is ready as /readyz would say it (`reo.health`): by its own word, unless its last sign of life is old. The bounds are virtual seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.metrics import HEARTBEAT, LAG, READY
from reo.health import LATE_S
from simulator.schedule import START_UNIX_S
from simulator.system import Child

if TYPE_CHECKING:
    from simulator.judge import Judge
    from simulator.kafka import Cluster
    from simulator.system import System

NOTICED_S = LATE_S + 15.0
"""A cluster that is away for so long makes what needs it not ready."""
WAITS_S = 120.0
"""While a record waits for so long, there is lag, or something is not ready, if only for a moment. (Until the session time-out of 45 s and a rebalance are
over, nobody reports the lag of a partition whose worker was killed and does not come back.)"""
EVERY_S = 1.0


class Reports:
    """Looks at them every second."""

    def __init__(self, system: System, judge: Judge) -> None:
        self.system = system
        self.judge = judge
        self.due = 0.0
        self.untrue = ""
        self.untrue_since: float | None = None
        """When every process became ready with no lag, if they are."""
        for metric in (HEARTBEAT, LAG, READY):
            metric.clear()  # of the schedule before

    def is_untrue(self) -> bool:
        """Asked after each step."""
        if not self.untrue and self.system.schedule.now >= self.due and self.system.ended is None:
            self.due = self.system.schedule.now + EVERY_S
            self.untrue = self._of_readiness() or (self._of_lag() if not self.judge.is_history_lost and not self.system.candidates else "")
        return bool(self.untrue)

    def _of_readiness(self) -> str:
        for child in self._alone():
            if self._is_ready(child):
                assert child.process
                awake_s = self.system.schedule.now - child.process.thawed_at
                for cluster in (self.system.destination, *self._sources(child)):
                    if min(cluster.downtime_s(), awake_s) > NOTICED_S:
                        return f"{child.name} is ready, and {cluster.name} is away for {cluster.downtime_s():.0f} s"
        return ""

    def _of_lag(self) -> str:
        waiting_s = self.judge.waiting_for_s()
        living = self._alone()
        if not waiting_s or self.reported() > 0 or not living or not all(map(self._is_ready, living)):
            self.untrue_since = None
        elif self.untrue_since is None:
            self.untrue_since = self.system.schedule.now
        elif min(waiting_s, self.system.schedule.now - self.untrue_since) > WAITS_S:
            return f"every process is ready and reports no lag, and a record waits for {waiting_s:.0f} s: {self.judge.missing()}"
        return ""

    def reported(self) -> float:
        """Records that wait, of both stages."""
        return sum(sample.value for metric in LAG.collect() for sample in metric.samples)

    def _alone(self) -> list[Child]:
        """Those that live; of two stage ones nobody could tell which one has reported."""
        stage_ones = [child for child in self.system.children if child.name.startswith("stage one")]
        return [child for child in self.system.children if child.process and child.process.is_alive and (len(stage_ones) == 1 or child not in stage_ones)]

    def _sources(self, child: Child) -> list[Cluster]:
        return [self.system.source] if child.name.startswith("stage one") and not self.system.candidates else []

    def _is_ready(self, child: Child) -> bool:
        assert child.process is not None
        stage, number = ("replicator", "0") if child.name.startswith("stage one") else ("deduplicator", child.name.split()[1])
        clock = START_UNIX_S + self.system.schedule.now + child.process.clock_offset_s
        return bool(READY.labels(stage, number)._value.get()) and clock - HEARTBEAT.labels(stage, number)._value.get() <= LATE_S
