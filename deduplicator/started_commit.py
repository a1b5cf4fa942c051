"""The commit of a round that was started: what is counted when it is confirmed.

It keeps counts and timestamps only: the records belong to the producer by then.
"""

from __future__ import annotations

from collections.abc import Sequence

from common import clock
from common.metrics import (
    COPY_SECONDS,
    DROP_REASONS,
    DROPPED,
    FILTERED,
    FRONTIER,
    RECORDS_IN,
    RECORDS_OUT,
    TORN,
    TRANSACTION_RECORDS,
    TRANSACTION_SECONDS,
)
from common.routes import SAME
from deduplicator.partition import Partition
from deduplicator.round_decisions import RoundDecisions


class StartedCommit:
    """The partitions of one round, with its decisions; `began_at` is when the transaction was
    begun, on the monotonic clock.
    """

    def __init__(self, rounds: Sequence[tuple[Partition, RoundDecisions]], began_at: float) -> None:
        self.rounds = rounds
        self.began_at = began_at
        self.consumed = sum(decisions.consumed for _, decisions in rounds)

    def on_committed(self) -> None:
        """It is certainly committed. Other workers set the metric of revoked partitions."""
        TRANSACTION_SECONDS.observe(clock.monotonic() - self.began_at)
        TRANSACTION_RECORDS.observe(sum(decisions.written for _, decisions in self.rounds))
        for partition, decisions in self.rounds:
            partition.on_committed(decisions)
            _count_records(partition, decisions)
            if partition.is_assigned:
                set_frontier_metric(partition)


def _count_records(partition: Partition, decisions: RoundDecisions) -> None:
    route, intermediate = partition.route, (partition.tp.topic, str(partition.tp.partition))
    destination = (
        route.destination_topic,
        str(partition.destination_tp.partition) if route.mapping == SAME else route.mapping,
    )
    RECORDS_IN.labels("deduplicator", *intermediate).inc(decisions.consumed)
    RECORDS_OUT.labels("deduplicator", *destination).inc(decisions.written)
    if decisions.torn:
        TORN.labels(*destination).inc(decisions.torn)
    for reason in DROP_REASONS:
        DROPPED.labels(reason, *intermediate).inc(decisions.dropped[reason])
    for name, count in decisions.left_out.items():
        FILTERED.labels(name).inc(count)
    if decisions.timestamps_ms:
        COPY_SECONDS.labels(route.destination_topic).observe(
            max(0.0, clock.time() - decisions.timestamps_ms[0] / 1000)
        )


def set_frontier_metric(partition: Partition) -> None:
    """A frontier is a source offset, so its labels are those of the source."""
    FRONTIER.labels(*map(str, partition.source_tp)).set(partition.frontier.source_offset)
