"""Watches a run while it lives: takes snapshots of both clusters, says when the run has to end, and
states what the source has nothing of.

A snapshot asks for everything of each partition, which takes processor time. With many partitions,
all of them are asked for at longer intervals. In between, one request a second asks where they end,
and a snapshot follows of those that have moved, or are not copied to their end.

Spark reports progress once per batch, and a batch in Real-Time Mode takes minutes. So Spark is not
asked: the group's frontier tells how far the copy is, the ends of the intermediate topics whether
stage one writes, and the source's own offsets what is left. From these, `end_reasons.find_event`
says what only a new run repairs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress

from common import clock, failpoints
from common.errors import ReoError
from common.kafka import partition_offsets, source_topics, topics
from common.kafka.partition_offsets import EndOffset, GroupCommit
from common.lag_gauges import LagReporter
from common.routes import Route, TopicPartition
from common.settings import Settings
from replicator.runs import empty_envelopes
from replicator.runs.clients import Clients
from replicator.runs.end_reasons import Event, find_event
from replicator.runs.run import Plan
from replicator.runs.snapshot import (
    OUTAGE_S,
    QUIET_S,
    ClusterSnapshot,
    describe_sources,
    take_snapshot,
)
from replicator.runs.snapshot_report import report_snapshot
from replicator.runs.source_losses import SourceLosses

SLOW_S = 15.0
"""After this time without progress, such a partition makes stage one not ready."""
ALL_S_A_PARTITION = 0.005
"""All partitions are asked for at this interval, for each of them: then the snapshots take about
2 % of a core (measured: 0.1 ms a partition).
"""
ENDS_S = 1.0
"""In between, how often all partitions are asked where they end."""


class Watch:
    """Follows one run."""

    def __init__(
        self,
        settings: Settings,
        clients: Clients,
        plan: Plan,
        lag: LagReporter,
        quiet_s: float = QUIET_S,
    ) -> None:
        self.settings = settings
        self.clients = clients
        self.plan = plan
        self.lag = lag
        self.quiet_s = quiet_s
        """A partition that stands still for so long is looked at."""
        self.source_partitions = plan.map_source_partitions()
        """The source partition of each intermediate partition."""
        self.losses = SourceLosses(settings, clients, plan, dict(plan.last_copied), self._beat)
        self.last_snapshot: ClusterSnapshot | None = None
        self.answered_at_s = clock.monotonic()
        """When the leaders of all source partitions have answered for the last time."""
        self.all_asked_at_s = self.answered_at_s

    def choose_partitions(self) -> Collection[TopicPartition]:
        """The intermediate partitions of the next snapshot; none when it is not time yet. All of
        them, also when the source does not answer in time: the snapshot says why.
        """
        before, now_s = self.last_snapshot, clock.monotonic()
        all_s = ALL_S_A_PARTITION * len(self.source_partitions)
        if before is None or not self.quiet_s or now_s >= self.all_asked_at_s + all_s:
            return self.source_partitions
        if now_s < self.answered_at_s + ENDS_S:
            return ()
        settled_s = now_s - self.answered_at_s
        ends = self._ask_ends()
        if ends is None:
            return self.source_partitions
        chosen = []
        for tp, partition in before.partitions.items():
            if not partition.is_settled:
                chosen.append(tp)
            elif ends[partition.source] != partition.source_end:
                self.lag.report_settled(partition.source, settled_s)
                chosen.append(tp)
        return chosen

    def _ask_ends(self) -> Mapping[TopicPartition, EndOffset] | None:
        """Where the source's partitions end; None when the answer is late, or there is none: then
        the next snapshot is late.
        """
        with suppress(ReoError):
            ends = partition_offsets.read_stable_ends(
                self.clients.source_reader, self.source_partitions.values(), OUTAGE_S
            )
            now_s = clock.monotonic()
            if now_s <= self.answered_at_s + OUTAGE_S:
                self.answered_at_s = now_s
                return ends
        return None

    def _beat(self) -> None:
        """Called while a comparison of records lasts long."""
        self.clients.beat()
        self._ask_ends()

    def observe(
        self,
        topic_partitions: Collection[TopicPartition],
        commits: Mapping[TopicPartition, GroupCommit],
    ) -> Event | None:
        """Take a snapshot of these intermediate partitions, with commits that were read just
        before; the reason to end the run, or None. SourceRecreated when a source topic was
        recreated, SourceTruncated when it has lost what was copied, ClusterUnreachable when a
        cluster does not answer.
        """
        before, answered_at_s = self.last_snapshot, self.answered_at_s
        now = take_snapshot(
            self.settings,
            self.clients,
            self.plan,
            commits,
            before,
            {tp: self.source_partitions[tp] for tp in topic_partitions},
            answered_at_s,
            self.quiet_s,
        )
        self._check_identities(now.sources)
        if now.asked.keys() == now.partitions.keys():
            self.answered_at_s = self.all_asked_at_s = now.taken_at_s
        try:
            self.losses.check(before, now)
        except ReoError:
            self.answered_at_s = answered_at_s  # the next snapshot is as late as this one
            raise
        if has_progressed(self.plan, before, now):
            failpoints.hit("one: first written")
        self.last_snapshot = now
        report_snapshot(before, now, self.lag)
        event = find_event(self.plan, before, now)
        if event is None or event == "grown":
            self._write_empty_ranges(now)
        return event

    def is_progressing(self) -> bool:
        """Whether stage one has written in this run, and within SLOW_S, wherever something waits
        for it.
        """
        now = self.last_snapshot
        return now is not None and all(
            partition.has_progressed
            and (partition.is_settled or now.taken_at_s - partition.progressed_at_s <= SLOW_S)
            for partition in now.partitions.values()
        )

    def has_records_before(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Whether visible records may be after the frontiers and before these source offsets, by
        intermediate partition.
        """
        assert self.last_snapshot is not None
        partitions = self.last_snapshot.partitions
        return any(
            max(partitions[tp].next_offset, partitions[tp].empty_up_to) < offset
            for tp, offset in offsets.items()
        )

    def check_sources(self) -> None:
        """TopicMissing or SourceRecreated when a source topic was deleted or recreated."""
        self._check_identities(describe_sources(self.settings, self.clients, self.plan))

    def _check_identities(self, now: Mapping[Route, topics.Topic]) -> None:
        for route, source in self.plan.sources.items():
            source_topics.check_identity(source.identity, now[route])

    def _write_empty_ranges(self, now: ClusterSnapshot) -> None:
        """Write that the source has nothing to copy after the frontier, where that is certain."""
        empty_ranges = {
            tp: (partition.next_offset, partition.empty_up_to)
            for tp, partition in now.asked.items()
            if partition.commit is not None
        }
        self.clients.empty_envelopes.write(
            empty_envelopes.build_empty_heads(self.plan.epoch, self.plan.identities, empty_ranges),
            empty_envelopes.STATE_AGAIN_S,
        )


def has_progressed(plan: Plan, before: ClusterSnapshot | None, now: ClusterSnapshot) -> bool:
    """Whether something of this run has arrived between two snapshots."""
    return any(
        partition.next_offset > plan.start_offsets[tp]
        if before is None
        else (partition.next_offset, partition.intermediate_end)
        != (before.partitions[tp].next_offset, before.partitions[tp].intermediate_end)
        for tp, partition in now.asked.items()
    )
