"""Sets the lag gauges of one stage: records and seconds.

The seconds tell how long the first waiting record has waited. That record is not read; two upper
bounds are known without it: the age of the last record that was copied (with rising timestamps,
waiting records are younger), and the time since no record was waiting. The smaller bound is
reported. Without the second bound, a topic that is written once a day would lag by a day for a
moment. Without the first, a process that has just started would know nothing.

While a server does not answer, what waits is unknown. The lag in records keeps its last value; the
lag in seconds grows from the last report on (`grow`), because a record may wait since then.

Stage one reports here from `replicator.run_watch`, stage two from `deduplicator.worker`. `reo lag`
and `reo status` ask the clusters themselves (`reo.progress.partition_progress`).
"""

from __future__ import annotations

from collections.abc import Callable, Container

from common import runtime
from common.metrics import LAG, LAG_SECONDS
from common.routes import TopicPartition


class LagReporter:
    """What one process reports of its stage."""

    def __init__(self, stage: str, clock: Callable[[], float] = runtime.time) -> None:
        self.stage = stage
        self.clock = clock
        self.nothing_waited_at: dict[TopicPartition, float] = {}
        """When no record was waiting for the last time, Unix time."""
        self.through_ms: dict[TopicPartition, int | None] = {}
        """As in the last report."""

    def report(self, tp: TopicPartition, records: int, through_ms: int | None) -> float | None:
        """Set both gauges, from the number of waiting records and the timestamp of the last copied
        one, if known; returns the seconds.
        """
        now = self.clock()
        if records == 0:
            self.nothing_waited_at[tp] = now
        self.through_ms[tp] = through_ms
        LAG.labels(self.stage, tp.topic, str(tp.partition)).set(records)
        return self._set_seconds(tp, now)

    def grow(self) -> None:
        """Let the seconds grow: what waits is unknown now."""
        for tp in self.through_ms:
            self._set_seconds(tp, self.clock())

    def keep_only(self, topic_partitions: Container[TopicPartition]) -> None:
        """Keep these partitions; all others belong to other processes from now on, which report
        them: here they have no lag. (A gauge of a process that lives cannot be removed.)
        """
        for tp in self.through_ms:
            if tp not in topic_partitions:
                for gauge in (LAG, LAG_SECONDS):
                    gauge.labels(self.stage, tp.topic, str(tp.partition)).set(0)
        self.through_ms = {
            tp: through_ms for tp, through_ms in self.through_ms.items() if tp in topic_partitions
        }
        self.nothing_waited_at = {
            tp: since for tp, since in self.nothing_waited_at.items() if tp in topic_partitions
        }

    def _set_seconds(self, tp: TopicPartition, now: float) -> float | None:
        through_ms = self.through_ms[tp]
        bounds = [
            since
            for since in (
                self.nothing_waited_at.get(tp),
                through_ms / 1000 if through_ms is not None else None,
            )
            if since is not None
        ]
        if not bounds:
            return None
        seconds = max(0.0, now - max(bounds))
        LAG_SECONDS.labels(self.stage, tp.topic, str(tp.partition)).set(seconds)
        return seconds
