"""What a run reports of its snapshots: its progress, its lag, and the transactions of the source
that hold it back.

A partition is read up to its last stable offset, which stays where it is until the first open
transaction ends.
"""

from __future__ import annotations

import logging

from common.lag_gauges import LagReporter
from common.metrics import RECORDS_IN, RECORDS_OUT, SOURCE_END, SOURCE_OPEN
from common.routes import TopicPartition
from replicator.runs.snapshot import ClusterSnapshot, PartitionSnapshot

log = logging.getLogger(__name__)
OPEN_S = 60.0
"""After this time an open transaction of the source is logged; it is Kafka's default transaction
timeout.
"""


def report_snapshot(before: ClusterSnapshot | None, now: ClusterSnapshot, lag: LagReporter) -> None:
    """Set the metrics of stage one."""
    for tp, partition in now.asked.items():
        if before is not None:
            _count_progress(tp, before.partitions[tp], partition)
        waiting = max(0, partition.source_high_watermark - partition.source_end.offset)
        lag.report_offsets(
            partition.source,
            partition.next_offset,
            partition.source_end.offset,
            partition.lag + waiting,
        )
        SOURCE_END.labels(*map(str, partition.source)).set(partition.source_end.offset)
        _report_open_transaction(before, now, tp, waiting)


def _count_progress(tp: TopicPartition, before: PartitionSnapshot, now: PartitionSnapshot) -> None:
    RECORDS_IN.labels("replicator", *map(str, now.source)).inc(
        max(0, now.next_offset - before.next_offset)
    )
    if now.intermediate_end is not None and before.intermediate_end is not None:
        RECORDS_OUT.labels("replicator", *map(str, tp)).inc(
            max(0, now.intermediate_end - before.intermediate_end)
        )


def _report_open_transaction(
    before: ClusterSnapshot | None, now: ClusterSnapshot, tp: TopicPartition, waiting: int
) -> None:
    """The metric; and once for each transaction, a warning."""
    partition = now.partitions[tp]
    since_s = partition.blocked_since_s
    open_s = 0.0 if since_s is None else now.taken_at_s - since_s
    SOURCE_OPEN.labels(*map(str, partition.source)).set(open_s)
    is_warned = before is not None and since_s is not None and before.taken_at_s - since_s > OPEN_S
    if open_s > OPEN_S and not is_warned:
        log.warning(
            "an open transaction of the source blocks %s at offset %d: the %d offsets from there on"
            " cannot be copied before it ends",
            partition.source,
            partition.source_end.offset,
            waiting,
        )
