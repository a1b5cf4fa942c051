"""Live positions while a run lives, and the reasons to end it.

Spark reports progress once a batch, which in Real-Time Mode is minutes: it is asked only with `filter.sql`, since nothing else tells of what
is left out. How far stage one is, is the origin of the newest record on the intermediate topic; how far stage two is, is the group's frontier.
From the two, and from the source's own offsets, `verdict` finds what only a new run mends.

A source that loses records ends before what was read of it; when it has grown again between two samples, its offsets say nothing. But records are lost
only with a new leader, or while a broker is away: after either, the records that were copied last are compared with the source (`replicator.history`), as of
the sample before and as of now, until all is copied that was written before it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from common import machine, points, positions, topics
from common.candidates import request_timeout_s
from common.lag import Lag
from common.metrics import RECORDS_IN, RECORDS_OUT, SOURCE_END, SOURCE_OPEN
from common.origin import Origin
from common.positions import Committed
from common.read_up_to import ReadUpTo
from common.routes import Place, Route
from common.settings import Settings
from replicator import history, tail_comparison
from replicator.clients import Clients
from replicator.read_up_to_writer import EmptyRange
from replicator.run import Event, Plan

log = logging.getLogger(__name__)
OPEN_S = 60.0
"""After which a transaction of the source is said in the log; Kafka's own default time-out of one."""
HOLE_S = 5.0
"""How long a hole may stay as it is: a retry inside Spark would be filling it by then."""
OUTAGE_S = 2.0
"""A sample that ends so long after the one before may have waited for a broker: none is started in less."""
STALL_S = 45.0
"""How long a partition may have visible records and not move. Real-Time Mode retries a read out of range at offset 0 for ever."""
SLOW_S = 15.0
"""After which such a partition makes stage one not ready."""


@dataclass(slots=True)
class Sample:
    """What was seen at one moment; what belongs to the source by its partitions, all else by the intermediate topics'."""

    sources: dict[Route, topics.Topic]
    source_beginnings: dict[Place, int]
    source_ends: dict[Place, positions.End]
    """What can be read: the last stable offsets."""
    source_high_watermarks: dict[Place, int]
    """Beyond them are open transactions."""
    intermediate_ends: dict[Place, int]
    newest: dict[Place, Origin | ReadUpTo]
    commits: dict[Place, Committed]


@dataclass(slots=True)
class Watch:
    """Follows one run; everything is by intermediate partition."""

    settings: Settings
    clients: Clients
    plan: Plan
    at_source: dict[Place, Place] = field(init=False)
    """The source partition that each holds."""
    positions: dict[Place, int] = field(init=False)
    """The source offset that is written next, as far as seen."""
    moved_at: dict[Place, float] = field(init=False)
    hole_since: dict[Place, tuple[int, float]] = field(default_factory=dict)
    """Partitions with an open hole of this run: from which source offset on, and since when."""
    filters: bool = field(init=False)
    patience_s: float = field(init=False)
    """How long a partition may have visible records and not move."""
    written: dict[Place, int] = field(init=False)
    """The end of the intermediate partition, as last seen; before the run writes, where it begins."""
    written_up_to: dict[Place, int] = field(default_factory=dict)
    """The newest source offset that this run is known to have written."""
    nothing_until: dict[Place, int] = field(default_factory=dict)
    """A source offset below which nothing visible is left."""
    read: dict[Place, int] = field(default_factory=dict)
    """With a filter: by source partition, how far Spark has read in batches that are done, whatever of it passed."""
    through_ms: dict[Place, int] = field(default_factory=dict)
    """The timestamp of the newest record that stage one has written, as far as seen."""
    open_since: dict[Place, tuple[int, float]] = field(default_factory=dict)
    """The last stable offset, and since when it is that."""
    said_open: set[Place] = field(default_factory=set)
    lag: Lag = field(default_factory=lambda: Lag("replicator"))
    began: dict[Place, int] = field(init=False)
    """The ends of the intermediate partitions before the run."""
    copied: dict[Place, history.LastCopied] = field(init=False)
    """By source partition, what was copied last as of the sample before."""
    doubtful: dict[Place, int] = field(default_factory=dict)
    """After something with which a loss can begin, the source offset up to which records were written before it: they can be copied since."""
    leader_epochs: dict[Place, int | None] = field(default_factory=dict)
    """By source partition, as of the sample before."""
    sampled_at: float = field(default_factory=machine.monotonic)

    def __post_init__(self) -> None:
        now = machine.monotonic()
        self.positions = dict(self.plan.starts)
        self.moved_at = dict.fromkeys(self.plan.starts, now)
        self.at_source = self.plan.at_source()
        self.copied = dict(self.plan.copied)
        self.began = positions.ends(self.clients.destination_admin, self.plan.starts)
        self.written = dict(self.began)
        self.filters = bool(self.settings.text("filter.sql"))
        self.patience_s = STALL_S
        if self.filters:  # nothing tells whether a batch gets on; `availableNow` reads all in one, and fails where it cannot read
            self.patience_s = math.inf if self.settings.stop_at_end else STALL_S + self.settings.number("replicator.batch_s")

    def gets_on(self) -> bool:
        """Whether each partition has moved lately, or has nothing to move; taken for granted with a filter, where nothing tells."""
        return self.filters or all(machine.monotonic() - since <= SLOW_S for since in self.moved_at.values())

    def wrote_nothing(self) -> bool:
        """Whether the intermediate topics are as they were before the run."""
        return positions.ends(self.clients.destination_admin, self.plan.starts) == self.began

    def sources(self) -> dict[Route, topics.Topic]:
        """What is there to be copied now; TopicMissing, with the topic, when one of this run is gone."""
        sources = topics.sources(self.settings, self.clients.source_admin, request_timeout_s(self.settings))
        topics.check_none_gone(self.plan.sources, sources)
        return sources

    def check_sources(self) -> None:
        """TopicMissing or SourceRecreated when a source is not what it was."""
        self._check_identities(self.sources())

    def sample(self, commits: dict[Place, Committed]) -> Sample:
        """Ask both clusters; ClusterUnreachable while one is silent, TopicMissing when a source is gone."""
        client, at_source, timeout_s = self.clients.source_admin, self.at_source.values(), request_timeout_s(self.settings)
        sources = self.sources()
        beginnings, ends = (ask(self.clients.destination_admin, self.plan.starts) for ask in (positions.beginnings, positions.ends))
        newest = positions.newest_origins(self.clients.frontier_reader, {place: (beginnings[place], end) for place, end in ends.items()})
        high_watermarks = positions.ends(client, at_source, timeout_s=timeout_s)  # before the stable ends: what is written between is no open transaction
        return Sample(sources, positions.beginnings(client, at_source, timeout_s), positions.stable_ends(client, at_source, timeout_s), high_watermarks,
                      ends, newest, commits)

    def verdict(self, sample: Sample) -> Event | None:
        """The reason to end the run, or None; SourceRecreated when a source is another topic now."""
        self._check_identities(sample.sources)
        if self._has_lost_records(sample):
            return "truncated"
        if any(commit.frontier.rule.epoch > self.plan.epoch for commit in sample.commits.values()):
            return "superseded"
        now = machine.monotonic()
        for place in self.plan.starts:
            self._move(place, sample, now)
        for place, commit in sample.commits.items():
            self._note_hole(place, commit, sample.intermediate_ends[place], now)
        if any(now - since > HOLE_S for _, since in self.hole_since.values()):
            return "hole"
        unread = {place for place in self.plan.starts if self._deleted_unread(place, sample)}  # before `_lag` looks for what is left
        if unread and not self.filters:
            return "stalled"
        self._write_down(sample)  # before `_lag` looks: the sample's beginnings have to be asked after the look
        lags = {place: self._lag(place, sample) for place in self.plan.starts}
        for place, lag in lags.items():
            self.lag.report(self.at_source[place], lag + self._open(place, sample, now), self.through_ms.get(place))
            SOURCE_END.labels(*map(str, self.at_source[place])).set(sample.source_ends[self.at_source[place]].offset)
            if lag == 0 and place not in unread:
                self.moved_at[place] = now
        if any(now - since > self.patience_s for since in self.moved_at.values()):
            return "stalled"
        grown = any(route not in self.plan.sources or source.partitions > self.plan.sources[route].partitions for route, source in sample.sources.items())
        return "grown" if grown else None

    def _check_identities(self, now: Mapping[Route, topics.Topic]) -> None:
        for route, source in self.plan.sources.items():
            topics.check_identity(source.identity, now[route])

    def _has_lost_records(self, sample: Sample) -> bool:
        """Whether a partition ends before what was read of it; SourceTruncated when its last copied record is not there any more."""
        leader_epochs = {there: end.leader_epoch for there, end in sample.source_ends.items()}
        short = {there for place, there in self.at_source.items() if sample.source_ends[there].offset < self.positions[place]}
        if short:  # the last stable offset may be behind a first frontier, while a transaction is open
            ends = positions.ends(self.clients.source_admin, short, timeout_s=request_timeout_s(self.settings))
            short = {there for place, there in self.at_source.items() if there in short and ends[there] < self.positions[place]}
        frontiers = {place: commit.frontier for place, commit in sample.commits.items()}
        copied = tail_comparison.list_last_copied(self.plan.sources, frontiers)
        if short or leader_epochs != self.leader_epochs or machine.monotonic() > self.sampled_at + OUTAGE_S:
            self._check_history(self.copied)
            self.doubtful = dict(self.positions)
        if self.doubtful:
            self._check_history({place: last for place, last in copied.items() if last != self.copied.get(place)})  # the others were compared by then
            self.doubtful = {place: end for place, end in self.doubtful.items() if place not in frontiers or frontiers[place].rule.frontier + 1 < end}
        self.copied |= copied
        self.leader_epochs, self.sampled_at = leader_epochs, machine.monotonic()
        return bool(short)

    def _check_history(self, copied: dict[Place, history.LastCopied]) -> None:
        history.check_history(self.settings, self.clients.source_admin, self.clients.source_reader, copied)

    def _move(self, place: Place, sample: Sample, now: float) -> None:
        """Note what this run has written: the newest record says so, or, when all of it is purged already, the frontier."""
        end = sample.intermediate_ends[place]
        RECORDS_OUT.labels("replicator", *map(str, place)).inc(max(0, end - self.written[place]))
        self.written[place] = end
        newest, commit = sample.newest.get(place), sample.commits.get(place)
        if isinstance(newest, Origin):
            self.through_ms[place] = newest.timestamp_ms
        if newest and newest.epoch == self.plan.epoch:
            self.written_up_to[place] = max(newest.source_offset, self.written_up_to.get(place, -1))
        reached = max(self.written_up_to.get(place, -1) + 1, commit.frontier.rule.frontier + 1 if commit else 0, self.read.get(self.at_source[place], 0))
        if reached > self.positions[place]:
            points.at("one: first written")
            RECORDS_IN.labels("replicator", *map(str, self.at_source[place])).inc(reached - self.positions[place])
            self.positions[place] = reached
            self.moved_at[place] = now

    def _note_hole(self, place: Place, commit: Committed, end: int, now: float) -> None:
        """Stage two says in its commit that a hole is open, whatever is still to be read behind it. One that is being filled moves.

        Or it has read everything, and its frontier is below what was written: the intermediate topic has lost its newest records.
        """
        rule, first = commit.frontier.rule, -1
        if rule.hole is not None and rule.epoch == self.plan.epoch:
            first = rule.hole.first
        elif commit.intermediate_offset >= end and rule.frontier < self.written_up_to.get(place, -1):
            first = rule.frontier + 1
        if first < 0:
            self.hole_since.pop(place, None)
        elif place not in self.hole_since or self.hole_since[place][0] != first:
            self.hole_since[place] = first, now

    def _deleted_unread(self, place: Place, sample: Sample) -> bool:
        """Whether the source has deleted offsets that this run has not written and not found empty. The next plan tells how many.

        Real-Time Mode does not: at offset 0 it retries a read out of range for ever, and when nothing visible follows, nothing else would.
        """
        return sample.source_beginnings[self.at_source[place]] > max(self.positions[place], self.nothing_until.get(place, 0))

    def _write_down(self, sample: Sample) -> None:
        if not self.settings.stop_at_end:  # there the stage does it when everything is copied
            self.clients.read_up_to_writer.write(self.plan.epoch, self.plan.identities, self._gaps(sample))

    def _gaps(self, sample: Sample) -> dict[Place, EmptyRange]:
        """The partitions where stage two has committed all that was written, and the source has nothing to copy behind the frontier, up to an offset."""
        found = {}
        for place, commit in sample.commits.items():
            there, frontier = self.at_source[place], commit.frontier.rule.frontier
            is_read = commit.intermediate_offset >= sample.intermediate_ends[place]
            is_accepted = self.written_up_to.get(place, -1) <= frontier
            is_looked_at = self.filters or sample.source_beginnings[there] <= frontier + 1 == self.positions[place]
            end = self.read.get(there, 0) if self.filters else self.nothing_until.get(place, 0)
            if is_read and is_accepted and is_looked_at and end <= sample.source_ends[there].offset:
                found[place] = EmptyRange(frontier, end)
        return found

    def _open(self, place: Place, sample: Sample, now: float) -> int:
        """The offsets behind the last stable one: they wait for a transaction of the source to be decided, and stage one with them."""
        there = self.at_source[place]
        stable = sample.source_ends[there].offset
        waiting = sample.source_high_watermarks[there] - stable
        if waiting <= 0 or self.open_since.get(place, (-1, now))[0] != stable:
            self.open_since[place] = (stable, now)
        held_s = now - self.open_since[place][1] if waiting > 0 else 0.0
        SOURCE_OPEN.labels(*map(str, there)).set(held_s)
        if held_s > OPEN_S and place not in self.said_open:
            self.said_open.add(place)
            log.warning("an open transaction of the source holds %s at offset %d: the %d offsets from there on cannot be copied before it is decided",
                        there, stable, waiting)
        elif waiting <= 0:
            self.said_open.discard(place)
        return max(0, waiting)

    def _lag(self, place: Place, sample: Sample) -> int:
        """Source offsets still to be written; 0 when only markers and aborted records are left."""
        there = self.at_source[place]
        position, end = self.positions[place], sample.source_ends[there].offset
        if end <= max(position, self.nothing_until.get(place, 0)):
            return 0
        if machine.monotonic() - self.moved_at[place] < 1:
            return end - position
        begin = max(position, sample.source_beginnings[there])
        if positions.first_visible(self.clients.source_reader, there, begin, end) is None:
            self.nothing_until[place] = end
            return 0
        return end - position
