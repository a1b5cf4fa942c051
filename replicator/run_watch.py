"""Watches a run while it lives: positions and their metrics, the reasons to end the run, and the
read-up-to records.

Spark reports progress once per batch, and a batch in Real-Time Mode takes minutes. So Spark's
progress is used only with `filter.sql`, where nothing else tells what was left out. The origin of
the newest record on the intermediate topic tells how far stage one is; the group's frontier tells
how far stage two is. From both, and from the source's own offsets, `find_event` detects what only a
new run repairs.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from common import failpoints, runtime
from common.kafka import partition_offsets, topics, visible_records
from common.kafka.partition_offsets import GroupCommit
from common.lag_gauges import LagReporter
from common.metrics import RECORDS_IN, RECORDS_OUT, SOURCE_END
from common.origin import Origin
from common.routes import Route, TopicPartition
from common.settings import Settings
from replicator import cluster_snapshot
from replicator.clients import Clients
from replicator.cluster_snapshot import ClusterSnapshot, describe_sources, take_snapshot
from replicator.intermediate_holes import OpenHoles
from replicator.losses_during_run import SourceLosses
from replicator.open_transactions import OpenTransactions
from replicator.read_up_to_writer import EmptyRange
from replicator.run import Event, Plan

log = logging.getLogger(__name__)
STALL_S = 45.0
"""How long a partition may have visible records without progress. Real-Time Mode retries an
out-of-range read at offset 0 for ever.
"""
SLOW_S = 15.0
"""After this time without progress, such a partition makes stage one not ready."""


@dataclass(slots=True)
class Watch:
    """Follows one run. Every mapping is by intermediate partition unless its comment says
    otherwise.
    """

    settings: Settings
    clients: Clients
    plan: Plan
    source_partitions: dict[TopicPartition, TopicPartition] = field(init=False)
    """The source partition of each intermediate partition."""
    next_offsets: dict[TopicPartition, int] = field(init=False)
    """The source offset that is written next, as of the last snapshot."""
    progressed_at: dict[TopicPartition, float] = field(init=False)
    has_filter: bool = field(init=False)
    stall_s: float = field(init=False)
    """How long a partition may have visible records without progress."""
    intermediate_ends: dict[TopicPartition, int] = field(init=False)
    """The end of the intermediate partition, as of the last snapshot; before the run writes, its
    end at the start of the run.
    """
    written_up_to: dict[TopicPartition, int] = field(default_factory=dict)
    """The highest source offset that this run is known to have written."""
    empty_up_to: dict[TopicPartition, int] = field(default_factory=dict)
    """No visible record is left below this source offset."""
    spark_read_up_to: dict[TopicPartition, int] = field(default_factory=dict)
    """With a filter, by source partition: how far Spark has read in completed batches, whether the
    records passed or not.
    """
    can_trust_spark: bool = True
    """Whether no leader of the intermediate topics has changed. Otherwise what is missing there may
    be lost, not left out, and the run becomes `stalled`.
    """
    written_timestamp_ms: dict[TopicPartition, int] = field(default_factory=dict)
    """The timestamp of the newest record that stage one has written, as of the last snapshot."""
    lag: LagReporter = field(default_factory=lambda: LagReporter("replicator"))
    intermediate_ids: dict[str, str] = field(default_factory=dict)
    """With a filter and an end: by name, at the start of the run."""
    initial_ends: dict[TopicPartition, partition_offsets.EndOffset] = field(init=False)
    """The ends of the intermediate partitions at the start of the run."""
    holes: OpenHoles = field(init=False)
    source_losses: SourceLosses = field(init=False)
    open_transactions: OpenTransactions = field(default_factory=OpenTransactions)

    def __post_init__(self) -> None:
        self.holes = OpenHoles(self.plan.epoch)
        self.source_losses = SourceLosses(
            self.settings, self.clients, self.plan, dict(self.plan.last_copied)
        )
        self.next_offsets = dict(self.plan.start_offsets)
        self.progressed_at = dict.fromkeys(self.plan.start_offsets, runtime.monotonic())
        self.source_partitions = self.plan.map_source_partitions()
        self.initial_ends = partition_offsets.list_stable_ends(
            self.clients.destination_admin, self.plan.start_offsets
        )
        self.intermediate_ends = {tp: end.offset for tp, end in self.initial_ends.items()}
        self.has_filter = bool(self.settings.filter.sql)
        if self.has_filter and self.settings.stop_at_end:
            self.intermediate_ids = cluster_snapshot.read_intermediate_ids(
                self.settings, self.clients, self.plan
            )
        self.stall_s = STALL_S
        # nothing shows the progress inside a batch; `availableNow` reads all in one batch, and
        # fails where it cannot read
        if self.has_filter:
            self.stall_s = (
                math.inf
                if self.settings.stop_at_end
                else STALL_S + self.settings.replicator.batch_s
            )

    def is_progressing(self) -> bool:
        """Whether each partition has made progress within SLOW_S or has nothing to copy; always
        true with a filter, where nothing shows it.
        """
        return self.has_filter or all(
            runtime.monotonic() - since <= SLOW_S for since in self.progressed_at.values()
        )

    def has_written_nothing(self) -> bool:
        """Whether the intermediate topics end where they ended before the run, and nothing that was
        written can be lost: they are the same topics with the same leaders still, also since the
        last snapshot.
        """
        ends = partition_offsets.list_stable_ends(
            self.clients.destination_admin, self.plan.start_offsets
        )
        # after the ends: they cannot be those of a topic that is created in between
        ids = cluster_snapshot.read_intermediate_ids(self.settings, self.clients, self.plan)
        return self.can_trust_spark and (ids, ends) == (self.intermediate_ids, self.initial_ends)

    def check_sources(self) -> None:
        """TopicMissing or SourceRecreated when a source topic was deleted or recreated."""
        self._check_identities(describe_sources(self.settings, self.clients, self.plan))

    def take_snapshot(self, commits: dict[TopicPartition, GroupCommit]) -> ClusterSnapshot:
        """A snapshot with these commits (`replicator.cluster_snapshot.take_snapshot`)."""
        return take_snapshot(self.settings, self.clients, self.plan, commits)

    def find_event(self, snapshot: ClusterSnapshot) -> Event | None:
        """The reason to end the run, or None; SourceRecreated when a source topic was recreated."""
        self._check_identities(snapshot.sources)
        self._check_trust(snapshot)
        if self.source_losses.has_lost_records(snapshot, self.next_offsets):
            return "truncated"
        if self._is_superseded(snapshot):
            return "superseded"
        now = runtime.monotonic()
        for tp in self.plan.start_offsets:
            self._update_position(tp, snapshot, now)
        for tp, commit in snapshot.commits.items():
            end = snapshot.intermediate_ends[tp].offset
            self.holes.note_hole(tp, commit, end, self.written_up_to.get(tp, -1), now)
        if self.holes.has_unfilled(now):
            return "hole"
        # before `_update_lag` looks for visible records
        unread = {tp for tp in self.plan.start_offsets if self._is_deleted_unread(tp, snapshot)}
        if unread and not self.has_filter:
            return "stalled"
        # before `_update_lag` reads: the beginnings must be asked for after the read
        self._write_read_up_to(snapshot)
        lags = {tp: self._update_lag(tp, snapshot) for tp in self.plan.start_offsets}
        for tp, lag in lags.items():
            source_tp = self.source_partitions[tp]
            self.lag.report(
                source_tp,
                lag + self.open_transactions.count_waiting(source_tp, snapshot, now),
                self.written_timestamp_ms.get(tp),
            )
            SOURCE_END.labels(*map(str, source_tp)).set(
                snapshot.source_stable_ends[source_tp].offset
            )
            if lag == 0 and tp not in unread:
                self.progressed_at[tp] = now
        if any(now - since > self.stall_s for since in self.progressed_at.values()):
            return "stalled"
        grown = any(
            route not in self.plan.sources
            or source.partitions > self.plan.sources[route].partitions
            for route, source in snapshot.sources.items()
        )
        return "grown" if grown else None

    def _is_superseded(self, snapshot: ClusterSnapshot) -> bool:
        """Whether a newer run has begun, or a partition was begun again in a transaction that was
        open when this run was planned: then this run begins after its frontier.
        """
        return any(
            commit.frontier.rule.epoch > self.plan.epoch
            or commit.frontier.rule.frontier + 1 < self.plan.start_offsets[tp]
            for tp, commit in snapshot.commits.items()
        )

    def _check_trust(self, snapshot: ClusterSnapshot) -> None:
        self.can_trust_spark &= all(
            end.leader_epoch == self.initial_ends[tp].leader_epoch
            for tp, end in snapshot.intermediate_ends.items()
        )
        if not self.can_trust_spark:
            self.spark_read_up_to = {}

    def _check_identities(self, now: Mapping[Route, topics.Topic]) -> None:
        for route, source in self.plan.sources.items():
            topics.check_identity(source.identity, now[route])

    def _update_position(self, tp: TopicPartition, snapshot: ClusterSnapshot, now: float) -> None:
        """Update how far this run has written: from the newest record or, when all records are
        purged already, from the frontier.
        """
        end = snapshot.intermediate_ends[tp].offset
        RECORDS_OUT.labels("replicator", *map(str, tp)).inc(
            max(0, end - self.intermediate_ends[tp])
        )
        self.intermediate_ends[tp] = end
        newest, commit = snapshot.newest.get(tp), snapshot.commits.get(tp)
        if isinstance(newest, Origin):
            self.written_timestamp_ms[tp] = newest.timestamp_ms
        if newest and newest.epoch == self.plan.epoch:
            self.written_up_to[tp] = max(newest.source_offset, self.written_up_to.get(tp, -1))
        source_tp = self.source_partitions[tp]
        position = max(
            self.written_up_to.get(tp, -1) + 1,
            commit.frontier.rule.frontier + 1 if commit else 0,
            self.spark_read_up_to.get(source_tp, 0),
        )
        if position > self.next_offsets[tp]:
            failpoints.hit("one: first written")
            RECORDS_IN.labels("replicator", *map(str, source_tp)).inc(
                position - self.next_offsets[tp]
            )
            self.next_offsets[tp] = position
            self.progressed_at[tp] = now

    def _is_deleted_unread(self, tp: TopicPartition, snapshot: ClusterSnapshot) -> bool:
        """Whether the source has deleted offsets that this run has neither written nor found empty.
        The next plan tells how many.

        Real-Time Mode does not report it: at offset 0 it retries an out-of-range read for ever.
        When no visible record follows, nothing else would report it.
        """
        return snapshot.source_beginnings[self.source_partitions[tp]] > max(
            self.next_offsets[tp], self.empty_up_to.get(tp, 0)
        )

    def _write_read_up_to(self, snapshot: ClusterSnapshot) -> None:
        if not self.settings.stop_at_end:  # there the stage does it when everything is copied
            self.clients.read_up_to_writer.write(
                self.plan.epoch, self.plan.identities, self._find_empty_ranges(snapshot)
            )

    def _find_empty_ranges(self, snapshot: ClusterSnapshot) -> dict[TopicPartition, EmptyRange]:
        """The partitions where stage two has committed all that was written, and the source has
        nothing to copy after the frontier, up to an offset.
        """
        ranges = {}
        for tp, commit in snapshot.commits.items():
            source_tp, frontier = self.source_partitions[tp], commit.frontier.rule.frontier
            is_read = commit.intermediate_offset >= snapshot.intermediate_ends[tp].offset
            is_accepted = self.written_up_to.get(tp, -1) <= frontier
            is_checked = (
                self.has_filter
                or snapshot.source_beginnings[source_tp] <= frontier + 1 == self.next_offsets[tp]
            )
            end = (
                self.spark_read_up_to.get(source_tp, 0)
                if self.has_filter
                else self.empty_up_to.get(tp, 0)
            )
            if (
                is_read
                and is_accepted
                and is_checked
                and end <= snapshot.source_stable_ends[source_tp].offset
            ):
                ranges[tp] = EmptyRange(frontier, end)
        return ranges

    def _update_lag(self, tp: TopicPartition, snapshot: ClusterSnapshot) -> int:
        """The number of source offsets still to be written; 0 when only markers and aborted records
        are left.
        """
        source_tp = self.source_partitions[tp]
        position, end = self.next_offsets[tp], snapshot.source_stable_ends[source_tp].offset
        if end <= max(position, self.empty_up_to.get(tp, 0)):
            return 0
        if runtime.monotonic() - self.progressed_at[tp] < 1:
            return end - position
        begin = max(position, snapshot.source_beginnings[source_tp])
        if (
            visible_records.find_first_visible(
                self.clients.source_reader, source_tp, begin, end, self.clients.beat
            )
            is None
        ):
            self.empty_up_to[tp] = end
            return 0
        return end - position
