"""A partition's frontier when it is assigned: read and checked, made for the first time, anchored again, or refused.

Stage two alone writes frontiers, in a transaction, and stage one begins no run before every partition has one. So where a
copy begins is durable before anything is copied, whatever dies.

| what is found | what follows |
|---|---|
| a frontier, its position inside the intermediate topic | held against the destination's data (`deduplicator.check`) |
| a frontier, its position outside (records deleted unread) | the same, and anchored again: position at the end, epoch raised |
| no frontier, an empty destination partition | the first frontier: `source.start`, or the beginning for a partition that is new |
| a frontier of another destination topic (it was deleted and made again) | the same as none, but never later than what was copied |
| no frontier, records at the destination | FrontierLost, or, when told to append, the first frontier |

Whatever sets a frontier other than the rule raises the epoch, above the clock and above everything on the intermediate topic,
so that only a run begun after it is believed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from confluent_kafka.admin import AdminClient, OffsetSpec

from common import positions, topics
from common.errors import ClusterUnreachable, DestinationTruncated, FrontierLost, HangingTransaction
from common.frontier import Frontier, RuleState
from common.group import Group
from common.kafka_clients import admin, reader
from common.origin import Origin
from common.positions import Committed
from common.settings import Settings
from deduplicator.check import Surplus, held_against_data
from deduplicator.destination import Output

log = logging.getLogger(__name__)
BEYOND_TIMEOUT_S = 20
"""How long after the transaction time-out offsets may stay undecided: the coordinator looks for expired ones every 10 s."""


@dataclass(slots=True)
class Assigned:
    """What a worker holds for one intermediate partition while it owns it."""

    next_offset: int
    frontier: Frontier
    surplus: Surplus | None = None


@dataclass(slots=True)
class Start:
    """The result for a set of partitions; `made` are those whose frontier is new and has to be committed before anything else."""

    assigned: dict[int, Assigned] = field(default_factory=dict)
    outputs: dict[int, Output] = field(default_factory=dict)
    made: list[int] = field(default_factory=list)


class Starter:
    """Finds the frontiers of partitions; holds the clients that it asks with."""

    def __init__(self, settings: Settings, alive: Callable[[], None], clock: Callable[[], float] = time.time) -> None:
        self.settings = settings
        self.alive = alive
        self.clock = clock
        self.undecided_s = settings.number("deduplicator.transaction_timeout_ms") / 1000 + BEYOND_TIMEOUT_S
        self.reader = reader(settings.destination, settings)
        self.admin = admin(settings.destination, settings)
        self.group = Group(settings, self.admin)

    def start(self, partitions: Iterable[int]) -> Start:
        """Frontiers for these partitions; a Stop when one is refused. Waits while the cluster is silent."""
        wanted = sorted(partitions)
        if not wanted:
            return Start()
        commits = self._committed()
        destination = self._described(self.settings.destination_topic)
        intermediate = self._described(self.settings.intermediate_topic)
        if destination is None or intermediate is None:
            topics.prepare(self.settings)
            return self.start(wanted)
        ours = {partition: commits[partition] for partition in wanted
                if partition in commits and commits[partition].frontier.destination_topic_id == destination.topic_id}
        result = Start()
        result.outputs, surplus = self._checked(destination.name, {partition: commit.frontier for partition, commit in ours.items()})
        result.assigned = {partition: Assigned(commit.intermediate_offset, commit.frontier, surplus.get(partition)) for partition, commit in ours.items()}
        self._make_first([partition for partition in wanted if partition not in ours], commits, destination, result)
        self._anchor(intermediate.name, result)
        return result

    def _committed(self) -> dict[int, Committed]:
        """Every commit of the group on the intermediate topic; HangingTransaction when they stay undecided too long."""
        undecided_since: float | None = None
        name = self.settings.intermediate_topic
        while True:
            self.alive()
            try:
                intermediate = self._described(name)
                partitions = range(intermediate.partitions if intermediate else 0)
                try:
                    return positions.committed(self.reader, name, partitions)
                except (ClusterUnreachable, HangingTransaction):
                    self.group.commits(partitions)  # a consumer says of undecided offsets what it says of a silent cluster: no answer in time
                    undecided_since = None
                    raise
            except HangingTransaction as hanging:
                undecided_since = undecided_since or time.monotonic()
                if time.monotonic() > undecided_since + self.undecided_s:
                    raise HangingTransaction(f"{hanging} (undecided for {self.undecided_s:.0f} s)") from None
                log.warning("the frontier can not be read yet: %s", hanging)
            except ClusterUnreachable as silent:
                undecided_since = None
                log.warning("the frontier can not be read yet: %s", silent)
            time.sleep(0.2)

    def _checked(self, name: str, frontiers: dict[int, Frontier]) -> tuple[dict[int, Output], dict[int, Surplus]]:
        """The frontiers held against the data. Nothing is called missing while something is undecided.

        A coordinator writes the markers of a transaction one after the other, so right after a commit a frontier can be readable
        and its records not yet (found by `proof`).
        """
        compacted = topics.compacted(self.admin, self.settings.destination, name)
        deadline = time.monotonic() + self.undecided_s
        while True:
            self.alive()
            beginnings, ends = (ask(self.admin, name, frontiers) for ask in (positions.beginnings, positions.ends))
            decided = positions.ends(self.admin, name, frontiers, committed_only=True) == ends
            try:
                return held_against_data(self.reader, name, frontiers, beginnings, ends, compacted)
            except DestinationTruncated as missing:
                if decided:
                    raise
                if time.monotonic() > deadline:
                    raise HangingTransaction(f"a transaction on {name} stays open for more than {self.undecided_s:.0f} s, and with it: {missing}. "
                                             "`reo recover` names the command that aborts it; then start again") from None
                log.info("waiting for a transaction on %s to be decided: %s", name, missing)
                time.sleep(0.2)

    def _described(self, name: str) -> topics.Topic | None:
        return topics.look_up(self.settings.destination, self.admin, name)

    def _make_first(self, missing: list[int], commits: dict[int, Committed], destination: topics.Topic, result: Start) -> None:
        if not missing:
            return
        ends = positions.ends(self.admin, destination.name, missing)
        source_admin = admin(self.settings.source, self.settings)
        source = topics.source(self.settings, source_admin, self.settings.number("connect_timeout_s"))
        counted = max((commit.frontier.source_partitions for commit in commits.values()), default=source.partitions)
        for partition in missing:
            if ends[partition] > 0 and self.settings.text("deduplicator.without_frontier") == "refuse":
                raise FrontierLost(
                    f"{destination.name}-{partition} has records (it ends at {ends[partition]}), but group {self.settings.application} has no frontier for it: "
                    "its offsets expired or were deleted, or the topic was filled by something else. `reo recover` finds the frontier from the "
                    "data. Otherwise copy to a new topic, or set deduplicator.without_frontier=append to copy from source.start behind what is there")
            offset = first_source_offset(self.settings, source_admin, partition, from_beginning=partition >= counted or partition in commits)
            frontier = Frontier(RuleState(offset - 1, 0, None), source.identity, counted, destination.topic_id, ends[partition] - 1, 0)
            log.info("%s-%d: first frontier, the copy begins at source offset %d", destination.name, partition, offset)
            result.assigned[partition] = Assigned(-1, frontier)
            result.outputs[partition] = Output(ends[partition] - 1, 0)

    def _anchor(self, intermediate: str, result: Start) -> None:
        """Give a position at the end of the intermediate topic, and a higher epoch, to every partition whose own is not there."""
        wanted = list(result.assigned)
        beginnings, ends = (ask(self.admin, intermediate, wanted) for ask in (positions.beginnings, positions.ends))
        outside = {partition for partition in wanted if not beginnings[partition] <= result.assigned[partition].next_offset <= ends[partition]}
        newest = positions.newest_origins(self.reader, intermediate, {partition: (beginnings[partition], ends[partition]) for partition in outside})
        for partition in outside:
            state = result.assigned[partition]
            epoch = raised_epoch(int(self.clock() * 1000), state.frontier.rule.epoch, newest.get(partition))
            if state.next_offset >= 0:
                log.warning("%s-%d: offset %d is gone from the intermediate topic; going on at its end with epoch %d", intermediate, partition,
                            state.next_offset, epoch)
            state.frontier = anchored(state.frontier, epoch)
            state.next_offset = ends[partition]
            result.made.append(partition)


def first_source_offset(settings: Settings, source_admin: AdminClient, partition: int, from_beginning: bool) -> int:
    """Where `source.start` lets a partition begin; one added later, or one whose copy was deleted, is never begun in the middle."""
    start = settings.text("source.start")
    if start == "earliest" or (from_beginning and start == "latest"):
        spec = OffsetSpec.earliest()
    else:
        spec = OffsetSpec.latest() if start == "latest" else OffsetSpec.for_timestamp(int(start))
    offset = positions.listed(source_admin, settings.source_topic, [partition], spec)[partition]
    if offset < 0:  # no record is as young as the timestamp asked for
        offset = positions.ends(source_admin, settings.source_topic, [partition])[partition]
    return offset


def raised_epoch(clock_ms: int, committed: int, newest: Origin | None) -> int:
    """Above the clock, the committed epoch and the intermediate topic's newest record: only a run begun after it is believed."""
    return max(clock_ms, committed + 1, newest["e"] + 1 if newest else 0)


def anchored(frontier: Frontier, epoch: int) -> Frontier:
    """The same source offset in a raised epoch, with nothing linked: what belongs to a position at the end of the intermediate topic."""
    return replace(frontier, rule=RuleState(frontier.rule.frontier, epoch, None))
