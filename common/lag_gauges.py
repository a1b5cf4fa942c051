"""Sets the lag gauges of one stage: records and seconds.

The seconds tell how long the first waiting record has waited. That record is not read; upper bounds
are known without it: the time since no record was waiting, and

- in stage two, the age of the last record that was copied (with rising timestamps, waiting records
  are younger);
- in stage one, which knows no timestamps, the time since the source was last seen to end where the
  copy is now: every waiting record was written later. A process that has just started has not seen
  that yet. Then it is the time since it first looked, as if nothing had waited before.

The smaller bound is reported. Without the first one, a topic that is written once a day would lag
by a day for a moment.

While a server does not answer, what waits is unknown. The lag in records keeps its last value; the
lag in seconds grows from the last report on (`grow`), because a record may wait since then.

Stage one reports here from `replicator.runs.watch`, stage two from `deduplicator.worker`. `reo lag`
and `reo status` ask the clusters themselves (`reo.progress.partition_progress`).
"""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass, field

from common import clock
from common.metrics import LAG, LAG_SECONDS
from common.routes import TopicPartition

ENDS_PER_LAG = 20
"""How many ends of a partition are remembered, about, for the time that it lags behind: the bound
is too large by about a twentieth at most.
"""


@dataclass(slots=True)
class PartitionLag:
    """What is known of one partition."""

    nothing_waited_at: float = -math.inf
    """When no record was waiting for the last time, Unix time."""
    through_ms: float = -math.inf
    """The timestamp of the last copied record."""
    ends: list[tuple[int, int]] = field(default_factory=list)
    """Where it was seen to end, and when for the last time (ms since 1970), ascending: the last end
    that is copied, and those that are not. While none is copied yet: when the first one was seen
    for the first time.
    """


class LagReporter:
    """What one process reports of its stage."""

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self.partitions: dict[TopicPartition, PartitionLag] = {}

    def report(self, tp: TopicPartition, records: int, through_ms: int | None) -> float | None:
        """Set both gauges; `through_ms` is the last copied timestamp. Returns the seconds."""
        lag, now = self.partitions.setdefault(tp, PartitionLag()), clock.time()
        if records == 0:
            lag.nothing_waited_at = now
        lag.through_ms = -math.inf if through_ms is None else through_ms
        LAG.labels(self.stage, tp.topic, str(tp.partition)).set(records)
        return self._set_seconds(tp, now)

    def report_offsets(
        self, tp: TopicPartition, next_offset: int, end: int, records: int
    ) -> float | None:
        """As `report`, for a stage that is at `next_offset` of a partition which ends at `end`."""
        now_ms = int(clock.time() * 1000)
        ends = self.partitions.setdefault(tp, PartitionLag()).ends
        # a source that ends earlier has lost records, or is another cluster
        while ends and ends[-1][0] > end:
            ends.pop()
        is_new = not ends or ends[-1][0] < end
        is_close = len(ends) > 1 and ((now_ms - ends[-2][1]) * ENDS_PER_LAG < now_ms - ends[0][1])
        if is_new and not is_close:
            ends.append((end, now_ms))
        elif len(ends) > 1 or end <= next_offset:
            ends[-1] = end, now_ms
        while len(ends) > 1 and ends[1][0] <= next_offset:
            del ends[0]
        return self.report(tp, records, ends[0][1])

    def report_settled(self, tp: TopicPartition, seconds: float) -> None:
        """No record was waiting so many seconds ago, nor since the last report."""
        self.partitions[tp].nothing_waited_at = clock.time() - seconds

    def grow(self) -> None:
        """Let the seconds grow: what waits is unknown now."""
        now = clock.time()
        for tp in self.partitions:
            self._set_seconds(tp, now)

    def keep_only(self, topic_partitions: Container[TopicPartition]) -> None:
        """Keep these partitions; all others belong to other processes from now on, which report
        them: here they have no lag. (A gauge of a process that lives cannot be removed.)
        """
        for tp in [tp for tp in self.partitions if tp not in topic_partitions]:
            del self.partitions[tp]
            for gauge in (LAG, LAG_SECONDS):
                gauge.labels(self.stage, tp.topic, str(tp.partition)).set(0)

    def _set_seconds(self, tp: TopicPartition, now: float) -> float | None:
        lag = self.partitions[tp]
        since = max(lag.nothing_waited_at, lag.through_ms / 1000)
        if since == -math.inf:
            return None
        seconds = max(0.0, now - since)
        LAG_SECONDS.labels(self.stage, tp.topic, str(tp.partition)).set(seconds)
        return seconds
