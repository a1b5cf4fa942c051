"""What is counted when a commit that was started is confirmed: records, offsets, times.

It keeps counts and timestamps only: the records belong to the producer by then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from common import runtime
from common.metrics import (
    COPY_SECONDS,
    DROPPED,
    FRONTIER,
    RECORDS_IN,
    RECORDS_OUT,
    TORN,
    TRANSACTION_RECORDS,
    TRANSACTION_SECONDS,
)
from common.routes import SAME, Route, TopicPartition
from deduplicator.partitions import AssignedPartition
from deduplicator.round_decisions import RoundDecisions


class StartedCommit:
    """The decisions of one round and the states that they lead to, by intermediate partition;
    `written` counts the records that were written.

    `began_at` is when the transaction was begun, on the monotonic clock.
    """

    def __init__(
        self,
        work: Mapping[TopicPartition, RoundDecisions],
        next_states: Mapping[TopicPartition, AssignedPartition],
        written: Mapping[TopicPartition, int],
        began_at: float,
    ) -> None:
        self.work = work
        self.next_states = next_states
        self.written = written
        self.began_at = began_at
        self.consumed = sum(one.consumed for one in work.values())
        for one in work.values():
            one.release_records()

    def report(self, routes: Mapping[str, Route], assigned: Collection[TopicPartition]) -> None:
        """Update the metrics; that of the frontier only for partitions which are still
        `assigned`.
        """
        TRANSACTION_SECONDS.observe(runtime.monotonic() - self.began_at)
        TRANSACTION_RECORDS.observe(sum(self.written.values()))
        for tp, work in self.work.items():
            _report_partition(routes[tp.topic], tp, work, self.written[tp])
            if tp in assigned:
                set_frontier_metric(routes, tp, work.rule.frontier)

    def get_last_timestamps_ms(
        self, assigned: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Of the last records that were written to the partitions which are still `assigned`."""
        return {
            tp: work.timestamps_ms[1]
            for tp, work in self.work.items()
            if work.timestamps_ms and tp in assigned
        }


def _report_partition(route: Route, tp: TopicPartition, work: RoundDecisions, written: int) -> None:
    intermediate = (tp.topic, str(tp.partition))
    destination = (
        route.destination_topic,
        intermediate[1] if route.mapping == SAME else route.mapping,
    )
    RECORDS_IN.labels("deduplicator", *intermediate).inc(work.consumed)
    RECORDS_OUT.labels("deduplicator", *destination).inc(written)
    if work.torn:
        TORN.labels(*destination).inc(work.torn)
    for reason, number in (
        ("duplicate", work.duplicates),
        ("stale", work.stale),
        ("gap", work.gaps),
        ("filtered", work.filtered),
        ("cycle", work.cycles),
        ("parked", len(work.parked)),
        ("old format", work.old_format),
    ):
        DROPPED.labels(reason, *intermediate).inc(number)
    if work.timestamps_ms:
        COPY_SECONDS.labels(route.destination_topic).observe(
            max(0.0, runtime.time() - work.timestamps_ms[0] / 1000)
        )


def set_frontier_metric(routes: Mapping[str, Route], tp: TopicPartition, frontier: int) -> None:
    """A frontier is a source offset, so its labels are those of the source."""
    FRONTIER.labels(routes[tp.topic].source_topic, str(tp.partition)).set(frontier)
