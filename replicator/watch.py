"""Positions while a run lives, and the reasons to end the run.

Spark reports progress once per batch, and a batch in Real-Time Mode takes minutes. So Spark's
progress is used only with `filter.sql`, where nothing else tells what was left out. The origin of
the newest record on the intermediate topic tells how far stage one is; the group's frontier tells
how far stage two is. From both, and from the source's own offsets, `find_event` detects what only a
new run repairs.

A source that loses records ends before what was read from it. If it has grown again between two
samples, its offsets show nothing. But records are lost only when the leader changes or while a
broker is away. After either, the last copied records are compared with the source
(`replicator.source_history`), as of the previous sample and as of now, until everything is copied
that was written before that event.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from common import failpoints, runtime
from common.kafka import intermediate_records, positions, topics, visible_records
from common.kafka.positions import GroupCommit
from common.lag import Lag
from common.metrics import RECORDS_IN, RECORDS_OUT, SOURCE_END, SOURCE_OPEN
from common.origin import Origin
from common.read_up_to import ReadUpTo
from common.routes import Place, Route
from common.settings import Settings
from common.source_candidates import request_timeout_s
from replicator import source_history
from replicator.candidates import tail_comparison
from replicator.clients import Clients
from replicator.read_up_to_writer import EmptyRange
from replicator.run import Event, Plan

log = logging.getLogger(__name__)
OPEN_S = 60.0
"""After this time an open transaction of the source is logged; it is Kafka's default transaction
time-out.
"""
HOLE_S = 5.0
"""How long a hole may stay unchanged: a retry inside Spark would have begun to fill it by then."""
OUTAGE_S = 2.0
"""A sample that ends this long after the previous one may have waited for a broker; no broker
restarts faster.
"""
STALL_S = 45.0
"""How long a partition may have visible records without progress. Real-Time Mode retries an
out-of-range read at offset 0 for ever.
"""
SLOW_S = 15.0
"""After this time without progress, such a partition makes stage one not ready."""


@dataclass(slots=True)
class Sample:
    """What both clusters answered at one moment. The `source_…` fields are by source partition, the
    others by intermediate partition.
    """

    sources: dict[Route, topics.Topic]
    source_beginnings: dict[Place, int]
    source_ends: dict[Place, positions.EndOffset]
    """The last stable offsets: up to these the source can be read."""
    source_high_watermarks: dict[Place, int]
    """Between the last stable offset and this one are records of open transactions."""
    intermediate_ends: dict[Place, positions.EndOffset]
    newest: dict[Place, Origin | ReadUpTo]
    commits: dict[Place, GroupCommit]


@dataclass(slots=True)
class Watch:
    """Follows one run. Every mapping is by intermediate partition unless its comment says
    otherwise.
    """

    settings: Settings
    clients: Clients
    plan: Plan
    source_partitions: dict[Place, Place] = field(init=False)
    """The source partition of each intermediate partition."""
    positions: dict[Place, int] = field(init=False)
    """The source offset that is written next, as of the last sample."""
    progressed_at: dict[Place, float] = field(init=False)
    hole_since: dict[Place, tuple[int, float]] = field(default_factory=dict)
    """Partitions with an open hole of this run: its first source offset, and since when it is
    open.
    """
    has_filter: bool = field(init=False)
    stall_s: float = field(init=False)
    """How long a partition may have visible records without progress."""
    intermediate_ends: dict[Place, int] = field(init=False)
    """The end of the intermediate partition, as of the last sample; before the run writes, its end
    at the start of the run.
    """
    written_up_to: dict[Place, int] = field(default_factory=dict)
    """The highest source offset that this run is known to have written."""
    empty_up_to: dict[Place, int] = field(default_factory=dict)
    """No visible record is left below this source offset."""
    spark_read_up_to: dict[Place, int] = field(default_factory=dict)
    """With a filter, by source partition: how far Spark has read in completed batches, whether the
    records passed or not.
    """
    can_trust_spark: bool = True
    """Whether no leader of the intermediate topics has changed. Otherwise what is missing there may
    be lost, not left out, and the run becomes `stalled`.
    """
    intermediate_leader_epochs: dict[Place, int | None] = field(init=False)
    written_timestamp_ms: dict[Place, int] = field(default_factory=dict)
    """The timestamp of the newest record that stage one has written, as of the last sample."""
    stable_end_since: dict[Place, tuple[int, float]] = field(default_factory=dict)
    """The last stable offset, and since when it has not changed."""
    warned_open: set[Place] = field(default_factory=set)
    lag: Lag = field(default_factory=lambda: Lag("replicator"))
    initial_ends: dict[Place, int] = field(init=False)
    """The ends of the intermediate partitions at the start of the run."""
    copied: dict[Place, source_history.LastCopied] = field(init=False)
    """By source partition, what was copied last, as of the previous sample."""
    unverified_up_to: dict[Place, int] = field(default_factory=dict)
    """After an event that can lose records: the source offset up to which records were written
    before it. Stage two may have copied them since.
    """
    leader_epochs: dict[Place, int | None] = field(default_factory=dict)
    """By source partition, as of the previous sample."""
    sampled_at: float = field(default_factory=runtime.monotonic)

    def __post_init__(self) -> None:
        self.positions = dict(self.plan.starts)
        self.progressed_at = dict.fromkeys(self.plan.starts, runtime.monotonic())
        self.source_partitions = self.plan.source_partitions()
        self.copied = dict(self.plan.copied)
        ends = positions.list_stable_ends(self.clients.destination_admin, self.plan.starts)
        self.initial_ends = {place: end.offset for place, end in ends.items()}
        self.intermediate_leader_epochs = {place: end.leader_epoch for place, end in ends.items()}
        self.intermediate_ends = dict(self.initial_ends)
        self.has_filter = bool(self.settings.filter.sql)
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
        written can be lost.
        """
        return (
            self.can_trust_spark
            and positions.list_end_offsets(self.clients.destination_admin, self.plan.starts)
            == self.initial_ends
        )

    def describe_sources(self) -> dict[Route, topics.Topic]:
        """Every route with its source topic as it is now; TopicMissing when a source topic of this
        run is gone.
        """
        sources = topics.describe_sources(
            self.settings, self.clients.source_admin, request_timeout_s(self.settings)
        )
        topics.check_none_deleted(self.plan.sources, sources)
        return sources

    def check_sources(self) -> None:
        """TopicMissing or SourceRecreated when a source topic was deleted or recreated."""
        self._check_identities(self.describe_sources())

    def take_sample(self, commits: dict[Place, GroupCommit]) -> Sample:
        """Ask both clusters; ClusterUnreachable when one does not answer, TopicMissing when a
        source topic is gone.
        """
        client, at_source, timeout_s = (
            self.clients.source_admin,
            self.source_partitions.values(),
            request_timeout_s(self.settings),
        )
        sources = self.describe_sources()
        beginnings = positions.list_beginning_offsets(
            self.clients.destination_admin, self.plan.starts
        )
        ends = positions.list_stable_ends(self.clients.destination_admin, self.plan.starts)
        newest = intermediate_records.read_last_origins(
            self.clients.frontier_reader,
            {place: (beginnings[place], end.offset) for place, end in ends.items()},
        )
        # before the stable ends: records written in between are no open transaction
        high_watermarks = positions.list_end_offsets(client, at_source, timeout_s=timeout_s)
        return Sample(
            sources,
            positions.list_beginning_offsets(client, at_source, timeout_s),
            positions.list_stable_ends(client, at_source, timeout_s),
            high_watermarks,
            ends,
            newest,
            commits,
        )

    def find_event(self, sample: Sample) -> Event | None:
        """The reason to end the run, or None; SourceRecreated when a source topic was recreated."""
        self._check_identities(sample.sources)
        self._check_trust(sample)
        if self._has_lost_records(sample):
            return "truncated"
        if any(commit.frontier.rule.epoch > self.plan.epoch for commit in sample.commits.values()):
            return "superseded"
        now = runtime.monotonic()
        for place in self.plan.starts:
            self._update_position(place, sample, now)
        for place, commit in sample.commits.items():
            self._note_hole(place, commit, sample.intermediate_ends[place].offset, now)
        if any(now - since > HOLE_S for _, since in self.hole_since.values()):
            return "hole"
        # before `_count_lag` looks for visible records
        unread = {place for place in self.plan.starts if self._is_deleted_unread(place, sample)}
        if unread and not self.has_filter:
            return "stalled"
        # before `_count_lag` reads: the beginnings must be asked for after the read
        self._write_read_up_to(sample)
        lags = {place: self._count_lag(place, sample) for place in self.plan.starts}
        for place, lag in lags.items():
            self.lag.report(
                self.source_partitions[place],
                lag + self._count_open(place, sample, now),
                self.written_timestamp_ms.get(place),
            )
            SOURCE_END.labels(*map(str, self.source_partitions[place])).set(
                sample.source_ends[self.source_partitions[place]].offset
            )
            if lag == 0 and place not in unread:
                self.progressed_at[place] = now
        if any(now - since > self.stall_s for since in self.progressed_at.values()):
            return "stalled"
        grown = any(
            route not in self.plan.sources
            or source.partitions > self.plan.sources[route].partitions
            for route, source in sample.sources.items()
        )
        return "grown" if grown else None

    def _check_trust(self, sample: Sample) -> None:
        leader_epochs = {place: end.leader_epoch for place, end in sample.intermediate_ends.items()}
        self.can_trust_spark &= leader_epochs == self.intermediate_leader_epochs
        if not self.can_trust_spark:
            self.spark_read_up_to = {}

    def _check_identities(self, now: Mapping[Route, topics.Topic]) -> None:
        for route, source in self.plan.sources.items():
            topics.check_identity(source.identity, now[route])

    def _has_lost_records(self, sample: Sample) -> bool:
        """Whether a partition ends before what was read from it; SourceTruncated when its last
        copied record is gone.
        """
        leader_epochs = {
            source_place: end.leader_epoch for source_place, end in sample.source_ends.items()
        }
        truncated = {
            source_place
            for place, source_place in self.source_partitions.items()
            if sample.source_ends[source_place].offset < self.positions[place]
        }
        # while a transaction is open, the last stable offset may be below a first frontier
        if truncated:
            ends = positions.list_end_offsets(
                self.clients.source_admin, truncated, timeout_s=request_timeout_s(self.settings)
            )
            truncated = {
                source_place
                for place, source_place in self.source_partitions.items()
                if source_place in truncated and ends[source_place] < self.positions[place]
            }
        frontiers = {place: commit.frontier for place, commit in sample.commits.items()}
        copied = tail_comparison.list_last_copied(self.plan.sources, frontiers)
        if (
            truncated
            or leader_epochs != self.leader_epochs
            or runtime.monotonic() > self.sampled_at + OUTAGE_S
        ):
            self._check_history(self.copied)
            written = {
                place: newest.source_offset + 1
                for place, newest in sample.newest.items()
                if newest.epoch == self.plan.epoch
            }
            self.unverified_up_to = {
                place: max(position, written.get(place, 0))
                for place, position in self.positions.items()
            }
        if self.unverified_up_to:
            # the others are compared
            self._check_history(
                {place: last for place, last in copied.items() if last != self.copied.get(place)}
            )
            self.unverified_up_to = {
                place: end
                for place, end in self.unverified_up_to.items()
                if place not in frontiers or frontiers[place].rule.frontier + 1 < end
            }
        self.copied |= copied
        self.leader_epochs, self.sampled_at = leader_epochs, runtime.monotonic()
        return bool(truncated)

    def _check_history(self, copied: dict[Place, source_history.LastCopied]) -> None:
        source_history.check_history(
            self.settings, self.clients.source_admin, self.clients.source_reader, copied
        )

    def _update_position(self, place: Place, sample: Sample, now: float) -> None:
        """Update how far this run has written: from the newest record or, when all records are
        purged already, from the frontier.
        """
        end = sample.intermediate_ends[place].offset
        RECORDS_OUT.labels("replicator", *map(str, place)).inc(
            max(0, end - self.intermediate_ends[place])
        )
        self.intermediate_ends[place] = end
        newest, commit = sample.newest.get(place), sample.commits.get(place)
        if isinstance(newest, Origin):
            self.written_timestamp_ms[place] = newest.timestamp_ms
        if newest and newest.epoch == self.plan.epoch:
            self.written_up_to[place] = max(newest.source_offset, self.written_up_to.get(place, -1))
        source_place = self.source_partitions[place]
        position = max(
            self.written_up_to.get(place, -1) + 1,
            commit.frontier.rule.frontier + 1 if commit else 0,
            self.spark_read_up_to.get(source_place, 0),
        )
        if position > self.positions[place]:
            failpoints.hit("one: first written")
            RECORDS_IN.labels("replicator", *map(str, source_place)).inc(
                position - self.positions[place]
            )
            self.positions[place] = position
            self.progressed_at[place] = now

    def _note_hole(self, place: Place, commit: GroupCommit, end: int, now: float) -> None:
        """Note since when a hole is open. Stage two's commit says so, whatever is still to be read
        after the hole; the first offset of one being filled moves.

        A hole is also open when stage two has read everything and its frontier is below what was
        written: the intermediate topic lost its newest records.
        """
        rule, first = commit.frontier.rule, -1
        if rule.hole is not None and rule.epoch == self.plan.epoch:
            first = rule.hole.first
        elif commit.intermediate_offset >= end and rule.frontier < self.written_up_to.get(
            place, -1
        ):
            first = rule.frontier + 1
        if first < 0:
            self.hole_since.pop(place, None)
        elif place not in self.hole_since or self.hole_since[place][0] != first:
            self.hole_since[place] = first, now

    def _is_deleted_unread(self, place: Place, sample: Sample) -> bool:
        """Whether the source has deleted offsets that this run has neither written nor found empty.
        The next plan tells how many.

        Real-Time Mode does not report it: at offset 0 it retries an out-of-range read for ever.
        When no visible record follows, nothing else would report it.
        """
        return sample.source_beginnings[self.source_partitions[place]] > max(
            self.positions[place], self.empty_up_to.get(place, 0)
        )

    def _write_read_up_to(self, sample: Sample) -> None:
        if not self.settings.stop_at_end:  # there the stage does it when everything is copied
            self.clients.read_up_to_writer.write(
                self.plan.epoch, self.plan.identities, self._find_empty_ranges(sample)
            )

    def _find_empty_ranges(self, sample: Sample) -> dict[Place, EmptyRange]:
        """The partitions where stage two has committed all that was written, and the source has
        nothing to copy after the frontier, up to an offset.
        """
        ranges = {}
        for place, commit in sample.commits.items():
            source_place, frontier = self.source_partitions[place], commit.frontier.rule.frontier
            is_read = commit.intermediate_offset >= sample.intermediate_ends[place].offset
            is_accepted = self.written_up_to.get(place, -1) <= frontier
            is_checked = (
                self.has_filter
                or sample.source_beginnings[source_place] <= frontier + 1 == self.positions[place]
            )
            end = (
                self.spark_read_up_to.get(source_place, 0)
                if self.has_filter
                else self.empty_up_to.get(place, 0)
            )
            if (
                is_read
                and is_accepted
                and is_checked
                and end <= sample.source_ends[source_place].offset
            ):
                ranges[place] = EmptyRange(frontier, end)
        return ranges

    def _count_open(self, place: Place, sample: Sample, now: float) -> int:
        """The number of offsets after the last stable offset: stage one cannot read them before an
        open transaction of the source ends.
        """
        source_place = self.source_partitions[place]
        stable = sample.source_ends[source_place].offset
        waiting = sample.source_high_watermarks[source_place] - stable
        if waiting <= 0 or self.stable_end_since.get(place, (-1, now))[0] != stable:
            self.stable_end_since[place] = (stable, now)
        open_s = now - self.stable_end_since[place][1] if waiting > 0 else 0.0
        SOURCE_OPEN.labels(*map(str, source_place)).set(open_s)
        if open_s > OPEN_S and place not in self.warned_open:
            self.warned_open.add(place)
            log.warning(
                "an open transaction of the source blocks %s at offset %d: the %d offsets from"
                " there on cannot be copied before it ends",
                source_place,
                stable,
                waiting,
            )
        elif waiting <= 0:
            self.warned_open.discard(place)
        return max(0, waiting)

    def _count_lag(self, place: Place, sample: Sample) -> int:
        """The number of source offsets still to be written; 0 when only markers and aborted records
        are left.
        """
        source_place = self.source_partitions[place]
        position, end = self.positions[place], sample.source_ends[source_place].offset
        if end <= max(position, self.empty_up_to.get(place, 0)):
            return 0
        if runtime.monotonic() - self.progressed_at[place] < 1:
            return end - position
        begin = max(position, sample.source_beginnings[source_place])
        if (
            visible_records.find_first_visible(self.clients.source_reader, source_place, begin, end)
            is None
        ):
            self.empty_up_to[place] = end
            return 0
        return end - position
