"""Live positions while a run lives, and the reasons to end it.

Spark reports progress once a batch, which in Real-Time Mode is minutes: nothing here asks Spark. How far stage one is, is the
origin of the newest record on the intermediate topic; how far stage two is, is the group's frontier. From the two, and from
the source's own offsets, `verdict` finds what only a new run mends.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from common import points, positions, topics
from common.metrics import LAG, RECORDS_IN, RECORDS_OUT
from common.origin import Origin
from common.positions import Committed
from common.settings import Settings
from replicator.clients import Clients
from replicator.run import Event, Plan

HOLE_S = 5.0
"""How long a hole may stay: a retry inside Spark would have filled it by then."""
STALL_S = 45.0
"""How long a partition may have visible records and not move. Real-Time Mode retries a read out of range at offset 0 for ever."""


@dataclass(slots=True)
class Sample:
    """What was seen at one moment."""

    source: topics.Topic
    source_beginnings: dict[int, int]
    source_ends: dict[int, int]
    intermediate_ends: dict[int, int]
    newest: dict[int, Origin]
    commits: dict[int, Committed]


@dataclass(slots=True)
class Watch:
    """Follows one run."""

    settings: Settings
    clients: Clients
    plan: Plan
    positions: dict[int, int] = field(init=False)
    """Per partition the source offset that is written next, as far as seen."""
    moved_at: dict[int, float] = field(init=False)
    hole_since: dict[int, float] = field(default_factory=dict)
    """Partitions of which stage two has read everything of this run and not accepted the newest record."""
    written: dict[int, int] = field(init=False)
    """Per partition the end of the intermediate topic, as last seen; before the run writes, where it begins."""
    nothing_until: dict[int, int] = field(default_factory=dict)
    """Per partition a source offset below which nothing visible is left."""

    def __post_init__(self) -> None:
        now = time.monotonic()
        self.positions = dict(self.plan.starts)
        self.moved_at = dict.fromkeys(self.plan.starts, now)
        self.written = positions.ends(self.clients.destination_admin, self.settings.intermediate_topic, self.plan.starts)

    def sample(self, commits: dict[int, Committed]) -> Sample:
        """Ask both clusters; ClusterUnreachable while one is silent."""
        client, name, partitions = self.clients.source_admin, self.settings.source_topic, list(self.plan.starts)
        destination, intermediate = self.clients.destination_admin, self.settings.intermediate_topic
        beginnings = positions.beginnings(destination, intermediate, partitions)
        ends = positions.ends(destination, intermediate, partitions)
        newest = positions.newest_origins(self.clients.frontier_reader, intermediate,
                                          {partition: (beginnings[partition], end) for partition, end in ends.items()})
        return Sample(topics.source(self.settings, client), positions.beginnings(client, name, partitions),
                      positions.ends(client, name, partitions, committed_only=True), ends, newest, commits)

    def verdict(self, sample: Sample) -> Event | None:
        """The reason to end the run, or None; SourceRecreated when the source is another topic now."""
        topics.check_identity(self.plan.identity, sample.source)
        if any(commit.frontier.rule.epoch > self.plan.epoch for commit in sample.commits.values()):
            return "superseded"
        now = time.monotonic()
        for partition in self.plan.starts:
            self._move(partition, sample, now)
        for partition, origin in sample.newest.items():
            self._note_hole(partition, origin, sample, now)
        if any(now - since > HOLE_S for since in self.hole_since.values()):
            return "hole"
        if any(self._deleted_unread(partition, sample) for partition in self.plan.starts):  # before `_lag` looks for what is left
            return "stalled"
        lags = {partition: self._lag(partition, sample) for partition in self.plan.starts}
        for partition, lag in lags.items():
            LAG.labels("replicator", self.settings.source_topic, str(partition)).set(lag)
            if lag == 0:
                self.moved_at[partition] = now
        if any(now - since > STALL_S for since in self.moved_at.values()):
            return "stalled"
        return "grown" if sample.source.partitions > len(self.plan.starts) else None

    def _move(self, partition: int, sample: Sample, now: float) -> None:
        """Note what this run has written: the newest record says so, or, when all of it is purged already, the frontier."""
        end = sample.intermediate_ends[partition]
        RECORDS_OUT.labels("replicator", self.settings.intermediate_topic, str(partition)).inc(max(0, end - self.written[partition]))
        self.written[partition] = end
        newest, commit = sample.newest.get(partition), sample.commits.get(partition)
        reached = max(newest["o"] + 1 if newest and newest["e"] == self.plan.epoch else 0, commit.frontier.rule.frontier + 1 if commit else 0)
        if reached > self.positions[partition]:
            points.at("one: first written")
            RECORDS_IN.labels("replicator", self.settings.source_topic, str(partition)).inc(reached - self.positions[partition])
            self.positions[partition] = reached
            self.moved_at[partition] = now

    def _note_hole(self, partition: int, newest: Origin, sample: Sample, now: float) -> None:
        """A hole is seen, not concluded from silence: an empty intermediate topic (all of it purged) has none."""
        commit = sample.commits.get(partition)
        if commit is None:
            return
        read_all = commit.intermediate_offset >= sample.intermediate_ends[partition]
        if read_all and newest["e"] == self.plan.epoch and commit.frontier.rule.frontier < newest["o"]:
            self.hole_since.setdefault(partition, now)
        else:
            self.hole_since.pop(partition, None)

    def _deleted_unread(self, partition: int, sample: Sample) -> bool:
        """Whether the source has deleted offsets that this run has not written and not found empty. The next plan tells how many.

        Real-Time Mode does not: at offset 0 it retries a read out of range for ever, and when nothing visible follows, nothing else would.
        """
        return sample.source_beginnings[partition] > max(self.positions[partition], self.nothing_until.get(partition, 0))

    def _lag(self, partition: int, sample: Sample) -> int:
        """Source offsets still to be written; 0 when only markers and aborted records are left."""
        position, end = self.positions[partition], sample.source_ends[partition]
        if end <= max(position, self.nothing_until.get(partition, 0)):
            return 0
        if time.monotonic() - self.moved_at[partition] < 1:
            return end - position
        begin = max(position, sample.source_beginnings[partition])
        if positions.first_visible(self.clients.source_reader, self.settings.source_topic, partition, begin, end) is None:
            self.nothing_until[partition] = end
            return 0
        return end - position
