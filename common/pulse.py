"""One process's sign of life: that it gets on, whether it does its work, what it waits for, and the lag that grows meanwhile.

| call | when | what is seen of it |
|---|---|---|
| `beat` | a step was done: a record filtered, a part written, a question answered | the process lives (/livez) |
| `wait` | a server did not answer, or something else has to happen first | it lives, and is not ready; /readyz says why |
| `ready` | work was done, or every server has just answered that none is left | it is ready |

So a process that waits is not ready until it has worked again. A single call into a client can block without either: such a process is not ready when
its last sign of life is `reo.health.LATE_S` old, and is killed at `reo.health.SILENT_S`. Every call that may rightly last longer is made in parts.

While a process waits nobody knows how much there is to copy. Its seconds of lag grow then from when that was known last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from common import machine
from common.lag import Lag
from common.metrics import HEARTBEAT, READY, WAITING

Reason = Literal["start", "source", "destination", "database", "clusters", "transaction", "retry", "group", "stage two", "spark"]
REASONS: dict[Reason, str] = {
    "start": "its start",
    "source": "a source that can be copied from, or a topic that fits",
    "destination": "an answer of the destination cluster",
    "database": "an answer of the database",
    "clusters": "an answer of the source or the destination cluster",
    "transaction": "an open transaction of the destination to be decided",
    "retry": "a transaction that failed to be done again",
    "group": "the group to take it in",
    "stage two": "stage two to make the first frontiers, or to read what is on the intermediate topics",
    "spark": "Spark: it starts, or it writes nothing although records wait",
}
"""The label of `reo_waiting`, and what /readyz says."""
BEAT_S = 0.5
"""A sign of life is written down at most so often: `beat` is called for each record that a user's function sees."""


class Pulse:
    """Of one process. The clock is Unix time."""

    def __init__(self, stage: str, worker: int = 0, clock: Callable[[], float] = machine.time) -> None:
        self.labels = (stage, str(worker))
        self.clock = clock
        self.heartbeat = HEARTBEAT.labels(*self.labels)
        self.readiness = READY.labels(*self.labels)
        self.lag = Lag(stage, clock)
        self.reason: Reason | None = None
        self.beaten_at = 0.0
        self.wait("start")

    def beat(self) -> None:
        """A step was done."""
        now = self.clock()
        if not 0 <= now - self.beaten_at < BEAT_S:
            self.beaten_at = now
            self.heartbeat.set(now)

    def wait(self, reason: Reason) -> None:
        """Nothing can be done until something else has happened; not ready from now on. Called again and again while it lasts."""
        self.beat()
        self.lag.grow()
        self.readiness.set(0)
        self._say(reason)

    def ready(self) -> None:
        """Work was done, or there is certainly none."""
        self.beat()
        self._say(None)
        self.readiness.set(1)

    def _say(self, reason: Reason | None) -> None:
        if reason == self.reason:
            return
        for old_or_new, yes in ((self.reason, 0), (reason, 1)):
            if old_or_new is not None:
                WAITING.labels(*self.labels, old_or_new).set(yes)
        self.reason = reason
