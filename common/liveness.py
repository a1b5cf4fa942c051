"""The liveness and readiness of one process: its heartbeat, whether it works, what it waits for.

    call            when                                              effect
    beat            a step is done: a record filtered, a part         the process is alive (/livez)
                    written, a request answered
    report_waiting  a server does not answer, or something else       it is alive but not ready;
                    must happen first                                 /readyz says why
    set_ready       work is done, or every server has just answered   it is ready
                    that none is left

So a process that waits is not ready until it has worked again. A call into a client can block
without a heartbeat: the process is not ready when its last heartbeat is LATE_S old, and is killed
when it is SILENT_S old. Every call that may last longer is made in parts. A
process that stood still for so long is ready when it has worked again, not with its next heartbeat.

While a process waits, how much is left to copy is unknown. Its lag in seconds then grows from the
time when that was last known.
"""

from __future__ import annotations

from typing import Literal

from common import clock
from common.lag_gauges import LagReporter
from common.metrics import HEARTBEAT, READY, WAITING

Reason = Literal[
    "start",
    "source",
    "destination",
    "database",
    "clusters",
    "transaction",
    "retry",
    "group",
    "stage two",
    "spark",
    "standstill",
]
REASONS: dict[Reason, str] = {
    "start": "its start",
    "source": "a source that can be copied from, or a topic that fits",
    "destination": "an answer of the destination cluster",
    "database": "an answer of destination.class",
    "clusters": "an answer of the source or the destination cluster",
    "transaction": "an open transaction of the destination to be decided",
    "retry": "a failed transaction to be repeated",
    "group": "the consumer group to accept it as a member and to assign its partitions",
    "stage two": (
        "stage two to make the first frontiers, or to read what is on the intermediate topics"
    ),
    "spark": "Spark: it starts, or it writes nothing although records wait",
    "standstill": "its first work after it stood still",
}
"""The label of `reo_waiting`, and what /readyz says."""
LATE_S = 15.0
"""A process whose last heartbeat is older than this is not ready: it waits in a call, most probably
to a server that does not answer. No step of real work takes as long.
"""
SILENT_S = 60.0
"""A process whose last heartbeat is older than this hangs: the supervisor kills it."""
BEAT_S = 0.5
"""The heartbeat metric is set at most this often: some call `beat` for each record."""


def is_silent(heartbeat: float, now: float) -> bool:
    """Whether a process with this last heartbeat, or start (Unix time), hangs."""
    return now - heartbeat > SILENT_S


class Liveness:
    """The heartbeat of one process. The clock is Unix time."""

    def __init__(self, stage: str, worker: int = 0) -> None:
        self.labels = (stage, str(worker))
        self.heartbeat = HEARTBEAT.labels(*self.labels)
        self.readiness = READY.labels(*self.labels)
        self.lag = LagReporter(stage)
        self.reason: Reason | None = None
        self.beaten_at = clock.time() - BEAT_S
        self.report_waiting("start")

    def beat(self) -> None:
        """Report that a step is done."""
        now = clock.time()
        silent_s = now - self.beaten_at
        if not 0 <= silent_s < BEAT_S:
            self.beaten_at = now
            self.heartbeat.set(now)
        if silent_s > LATE_S and self.reason is None:
            self.report_waiting("standstill")

    def report_waiting(self, reason: Reason) -> None:
        """Report, again and again, what the process waits for; it is not ready meanwhile."""
        self.beat()
        self.lag.grow()
        self.readiness.set(0)
        self._set_reason(reason)

    def set_ready(self) -> None:
        """Report that work is done, or that there is certainly none."""
        self.beat()
        self._set_reason(None)
        self.readiness.set(1)

    def _set_reason(self, reason: Reason | None) -> None:
        if reason == self.reason:
            return
        for old_or_new, yes in ((self.reason, 0), (reason, 1)):
            if old_or_new is not None:
                WAITING.labels(*self.labels, old_or_new).set(yes)
        self.reason = reason
