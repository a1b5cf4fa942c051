"""Live positions while a run lives, and the reasons to end it.

Spark reports progress once a batch, which in Real-Time Mode is minutes: it is asked only with `filter.sql`, since nothing else tells of what
is left out. How far stage one is, is the origin of the newest record on the intermediate topic; how far stage two is, is the group's frontier.
From the two, and from the source's own offsets, `verdict` finds what only a new run mends.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass, field

from common import points, positions, topics
from common.candidates import request_timeout_s
from common.lag import Lag
from common.metrics import RECORDS_IN, RECORDS_OUT, SOURCE_END, SOURCE_OPEN
from common.origin import Origin
from common.positions import Committed
from common.routes import Place, Route
from common.settings import Settings
from replicator.clients import Clients
from replicator.run import Event, Plan

log = logging.getLogger(__name__)
OPEN_S = 60.0
"""After which a transaction of the source is said in the log; Kafka's own default time-out of one."""
HOLE_S = 5.0
"""How long a hole may stay: a retry inside Spark would have filled it by then."""
STALL_S = 45.0
"""How long a partition may have visible records and not move. Real-Time Mode retries a read out of range at offset 0 for ever."""
SLOW_S = 15.0
"""After which such a partition makes stage one not ready."""


@dataclass(slots=True)
class Sample:
    """What was seen at one moment; what belongs to the source by its partitions, all else by the intermediate topics'."""

    sources: dict[Route, topics.Topic]
    source_beginnings: dict[Place, int]
    source_ends: dict[Place, int]
    """What can be read: the last stable offsets."""
    source_high_watermarks: dict[Place, int]
    """Beyond them are open transactions."""
    intermediate_ends: dict[Place, int]
    newest: dict[Place, Origin]
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
    hole_since: dict[Place, float] = field(default_factory=dict)
    """Partitions of which stage two has read everything of this run and not accepted the newest record."""
    filters: bool = field(init=False)
    patience_s: float = field(init=False)
    """How long a partition may have visible records and not move."""
    written: dict[Place, int] = field(init=False)
    """The end of the intermediate partition, as last seen; before the run writes, where it begins."""
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

    def __post_init__(self) -> None:
        now = time.monotonic()
        self.positions = dict(self.plan.starts)
        self.moved_at = dict.fromkeys(self.plan.starts, now)
        self.at_source = self.plan.at_source()
        self.began = positions.ends(self.clients.destination_admin, self.plan.starts)
        self.written = dict(self.began)
        self.filters = bool(self.settings.text("filter.sql"))
        self.patience_s = STALL_S
        if self.filters:  # nothing tells whether a batch gets on; `availableNow` reads all in one, and fails where it can not read
            self.patience_s = math.inf if self.settings.stop_at_end else STALL_S + self.settings.number("replicator.batch_s")

    def gets_on(self) -> bool:
        """Whether each partition has moved lately, or has nothing to move; taken for granted with a filter, where nothing tells."""
        return self.filters or all(time.monotonic() - since <= SLOW_S for since in self.moved_at.values())

    def wrote_nothing(self) -> bool:
        """Whether the intermediate topics are as they were before the run."""
        return positions.ends(self.clients.destination_admin, self.plan.starts) == self.began

    def sources(self) -> dict[Route, topics.Topic]:
        """What is there to be copied now; TopicMissing, with the topic, when one of this run is gone."""
        sources = topics.sources(self.settings, self.clients.source_admin, request_timeout_s(self.settings))
        topics.check_none_gone(self.plan.sources, sources)
        return sources

    def sample(self, commits: dict[Place, Committed]) -> Sample:
        """Ask both clusters; ClusterUnreachable while one is silent, TopicMissing when a source is gone."""
        client, at_source = self.clients.source_admin, self.at_source.values()
        sources = self.sources()
        beginnings, ends = (ask(self.clients.destination_admin, self.plan.starts) for ask in (positions.beginnings, positions.ends))
        newest = positions.newest_origins(self.clients.frontier_reader, {place: (beginnings[place], end) for place, end in ends.items()})
        high_watermarks = positions.ends(client, at_source)  # before the last stable offsets: what is written between is no open transaction
        return Sample(sources, positions.beginnings(client, at_source), positions.ends(client, at_source, committed_only=True), high_watermarks,
                      ends, newest, commits)

    def verdict(self, sample: Sample) -> Event | None:
        """The reason to end the run, or None; SourceRecreated when a source is another topic now."""
        for route, source in self.plan.sources.items():
            topics.check_identity(source.identity, sample.sources[route])
        if any(commit.frontier.rule.epoch > self.plan.epoch for commit in sample.commits.values()):
            return "superseded"
        now = time.monotonic()
        for place in self.plan.starts:
            self._move(place, sample, now)
        for place, origin in sample.newest.items():
            self._note_hole(place, origin, sample, now)
        if any(now - since > HOLE_S for since in self.hole_since.values()):
            return "hole"
        unread = {place for place in self.plan.starts if self._deleted_unread(place, sample)}  # before `_lag` looks for what is left
        if unread and not self.filters:
            return "stalled"
        lags = {place: self._lag(place, sample) for place in self.plan.starts}
        for place, lag in lags.items():
            self.lag.report(self.at_source[place], lag + self._open(place, sample, now), self.through_ms.get(place))
            SOURCE_END.labels(*map(str, self.at_source[place])).set(sample.source_ends[self.at_source[place]])
            if lag == 0 and place not in unread:
                self.moved_at[place] = now
        if any(now - since > self.patience_s for since in self.moved_at.values()):
            return "stalled"
        grown = any(route not in self.plan.sources or source.partitions > self.plan.sources[route].partitions for route, source in sample.sources.items())
        return "grown" if grown else None

    def _move(self, place: Place, sample: Sample, now: float) -> None:
        """Note what this run has written: the newest record says so, or, when all of it is purged already, the frontier."""
        end = sample.intermediate_ends[place]
        RECORDS_OUT.labels("replicator", *map(str, place)).inc(max(0, end - self.written[place]))
        self.written[place] = end
        newest, commit = sample.newest.get(place), sample.commits.get(place)
        if newest:
            self.through_ms[place] = newest.timestamp_ms
        reached = max(newest.source_offset + 1 if newest and newest.epoch == self.plan.epoch else 0, commit.frontier.rule.frontier + 1 if commit else 0,
                      self.read.get(self.at_source[place], 0))
        if reached > self.positions[place]:
            points.at("one: first written")
            RECORDS_IN.labels("replicator", *map(str, self.at_source[place])).inc(reached - self.positions[place])
            self.positions[place] = reached
            self.moved_at[place] = now

    def _note_hole(self, place: Place, newest: Origin, sample: Sample, now: float) -> None:
        """A hole is seen, not concluded from silence: an empty intermediate topic (all of it purged) has none."""
        commit = sample.commits.get(place)
        if commit is None:
            return
        read_all = commit.intermediate_offset >= sample.intermediate_ends[place]
        if read_all and newest.epoch == self.plan.epoch and commit.frontier.rule.frontier < newest.source_offset:
            self.hole_since.setdefault(place, now)
        else:
            self.hole_since.pop(place, None)

    def _deleted_unread(self, place: Place, sample: Sample) -> bool:
        """Whether the source has deleted offsets that this run has not written and not found empty. The next plan tells how many.

        Real-Time Mode does not: at offset 0 it retries a read out of range for ever, and when nothing visible follows, nothing else would.
        """
        return sample.source_beginnings[self.at_source[place]] > max(self.positions[place], self.nothing_until.get(place, 0))

    def _open(self, place: Place, sample: Sample, now: float) -> int:
        """The offsets behind the last stable one: they wait for a transaction of the source to be decided, and stage one with them."""
        there = self.at_source[place]
        stable, waiting = sample.source_ends[there], sample.source_high_watermarks[there] - sample.source_ends[there]
        if waiting <= 0 or self.open_since.get(place, (-1, now))[0] != stable:
            self.open_since[place] = (stable, now)
        held_s = now - self.open_since[place][1] if waiting > 0 else 0.0
        SOURCE_OPEN.labels(*map(str, there)).set(held_s)
        if held_s > OPEN_S and place not in self.said_open:
            self.said_open.add(place)
            log.warning("an open transaction of the source holds %s at offset %d: the %d offsets from there on can not be copied before it is decided",
                        there, stable, waiting)
        elif waiting <= 0:
            self.said_open.discard(place)
        return max(0, waiting)

    def _lag(self, place: Place, sample: Sample) -> int:
        """Source offsets still to be written; 0 when only markers and aborted records are left."""
        there = self.at_source[place]
        position, end = self.positions[place], sample.source_ends[there]
        if end <= max(position, self.nothing_until.get(place, 0)):
            return 0
        if time.monotonic() - self.moved_at[place] < 1:
            return end - position
        begin = max(position, sample.source_beginnings[there])
        if positions.first_visible(self.clients.source_reader, there, begin, end) is None:
            self.nothing_until[place] = end
            return 0
        return end - position
