"""What must be true of the service's metrics: readiness and lag, also while a cluster is down; and
how long a record may wait.

A process is ready as /readyz defines it (`reo.service.health`): it reports that it is ready, and
its last heartbeat is not too old. Limits are virtual seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter

from common.liveness import LATE_S
from common.metrics import HEARTBEAT, LAG, READY, RECORDS_OUT, TORN, TRANSACTIONS
from tools.simulator.child import Child
from tools.simulator.schedule import START_UNIX_S

if TYPE_CHECKING:
    from tools.simulator.judge import Judge
    from tools.simulator.kafka import Cluster
    from tools.simulator.system import System

DETECTION_S = LATE_S + 15.0
"""When a cluster is down for longer than this, the processes that need it must not be ready."""
UNREPORTED_WAIT_S = 120.0
"""When a record waits for longer than this, some process must report lag, or must be not ready, at
least for a moment. (When a worker is killed and does not come back, nobody reports the lag of its
partitions until its session has timed out and a rebalance is over.)
"""
HEALED_WITHIN_S = 110.0
"""After the last fault, no record may wait for longer than this: the session timeout of a worker
that does not come back, or a run that has stalled, and a new run.
"""
CHECK_INTERVAL_S = 1.0


class MetricsJudge:
    """Checks the metrics every second."""

    def __init__(self, system: System, judge: Judge) -> None:
        self.system = system
        self.judge = judge
        self.next_check_at = 0.0
        self.violation = ""
        self.no_lag_since: float | None = None
        """Since when every process is ready and reports no lag; None when this is not so."""
        for metric in (HEARTBEAT, LAG, READY, RECORDS_OUT, TORN, TRANSACTIONS):
            metric.clear()  # of the previous schedule

    def has_violation(self) -> bool:
        """Called after each step."""
        if (
            not self.violation
            and self.system.schedule.now >= self.next_check_at
            and self.system.service_exit_code is None
        ):
            self.next_check_at = self.system.schedule.now + CHECK_INTERVAL_S
            self.violation = self._check_readiness() or (
                self._check_lag() or self._check_wait()
                if not self.judge.is_history_lost and not self.system.candidates
                else ""
            )
        return bool(self.violation)

    def _check_readiness(self) -> str:
        for child in self._list_reporting_processes():
            if self._is_ready(child):
                assert child.process
                awake_s = self.system.schedule.now - child.process.thawed_at
                for cluster in (self.system.destination, *self._sources(child)):
                    if min(cluster.downtime_s(), awake_s) > DETECTION_S:
                        return (
                            f"{child.name} is ready, but {cluster.name} has been down for"
                            f" {cluster.downtime_s():.0f} s"
                        )
        return ""

    def _check_lag(self) -> str:
        wait_s = self.judge.measure_wait_s()
        processes = self._list_reporting_processes()
        if (
            not wait_s
            or self.sum_reported_lag() > 0
            or not processes
            or not all(map(self._is_ready, processes))
        ):
            self.no_lag_since = None
        elif self.no_lag_since is None:
            self.no_lag_since = self.system.schedule.now
        elif min(wait_s, self.system.schedule.now - self.no_lag_since) > UNREPORTED_WAIT_S:
            return (
                "every process is ready and reports no lag, but a record has waited for"
                f" {wait_s:.0f} s: {self.judge.describe_missing()}"
            )
        return ""

    def _check_wait(self) -> str:
        """While nothing disturbs the service, it has to heal, also while records go on coming. Not
        with a slow destination, or a slow function: six records of a batch can take that long.
        """
        wait_s, since_s = self.judge.measure_wait_s(), self.system.schedule.now - HEALED_WITHIN_S
        is_slow = (
            self.system.destination.record_delay_s > 0
            or self.system.plan.filter_setting == "filter.function"
        )
        if wait_s <= HEALED_WITHIN_S or is_slow or not self.system.faults.is_quiet_since(since_s):
            return ""
        return (
            f"nothing has disturbed the service for {HEALED_WITHIN_S:.0f} s, and a record has"
            f" waited for {wait_s:.0f} s: {self.judge.describe_missing()}"
        )

    def describe_unready(self) -> str:
        """Which processes are not ready, or that lag is reported; empty when nothing is left."""
        waiting = [
            child.name
            for child in self.system.children
            if child.is_enabled
            and not (child.process and child.process.is_alive and self._is_ready(child))
        ]
        if waiting:
            return f"not ready: {', '.join(waiting)}"
        lag = self.sum_reported_lag() - self._sum_blocked_lag()
        return f"a lag of {lag:.0f} is reported" if lag else ""

    def describe_miscount(self) -> str:
        """When everything is copied: whether the workers have counted other records than are there;
        empty when not. What a killed worker has committed, or a transaction in doubt, may not be
        counted; what was found again after a torn transaction may have been counted before.
        """
        counted = sum(_list_values(RECORDS_OUT, stage="deduplicator"))
        is_certain = not self.system.killed_workers and not any(
            _list_values(TRANSACTIONS, outcome="unknown")
        )
        copied = self.judge.compared
        if counted > copied or (is_certain and counted + sum(_list_values(TORN)) < copied):
            return f"{counted:.0f} records are counted, {copied} are there"
        return ""

    def _sum_blocked_lag(self) -> float:
        """What stage one reports of partitions where a transaction stays open, because the source
        has lost its marker: what follows it waits.
        """
        blocked = {
            (tp.topic, str(tp.partition))
            for tp in self.system.list_source_partitions()
            if (log := self.system.source.log(*tp)).last_stable_offset != log.end
        }
        return sum(
            sample.value
            for metric in LAG.collect()
            for sample in metric.samples
            if sample.labels["stage"] == "replicator"
            and (sample.labels["topic"], sample.labels["partition"]) in blocked
        )

    def sum_reported_lag(self) -> float:
        """The lag that both stages report, in records."""
        return sum(sample.value for metric in LAG.collect() for sample in metric.samples)

    def _list_reporting_processes(self) -> list[Child]:
        """The running processes, without stage one when there are two: both write the same
        metric.
        """
        stage_ones = [child for child in self.system.children if child.name.startswith("stage one")]
        return [
            child
            for child in self.system.children
            if child.process
            and child.process.is_alive
            and (len(stage_ones) == 1 or child not in stage_ones)
        ]

    def _sources(self, child: Child) -> list[Cluster]:
        return (
            [self.system.source]
            if child.name.startswith("stage one") and not self.system.candidates
            else []
        )

    def _is_ready(self, child: Child) -> bool:
        assert child.process is not None
        host_time_s = START_UNIX_S + self.system.schedule.now + child.process.clock_offset_s
        return (
            bool(READY.labels(*child.metric_labels)._value.get())
            and host_time_s - HEARTBEAT.labels(*child.metric_labels)._value.get() <= LATE_S
        )


def _list_values(counter: Counter, **labels: str) -> list[float]:
    """Its values with these labels."""
    return [
        sample.value
        for metric in counter.collect()
        for sample in metric.samples
        if sample.name.endswith("_total") and labels.items() <= sample.labels.items()
    ]
