"""One process of stage two: makes the clients, goes round the loop until told to stop, ends with the right exit code."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from common import machine, permissions, points, positions, source_candidates, topics
from common.kafka_clients import reader, stage_two_consumer
from common.metrics import COMPILED
from common.probe import Probe
from common.pulse import Pulse, Reason
from common.routes import Place, Route
from common.settings import Settings
from deduplicator import compiled, destinations
from deduplicator.destination import Destination
from deduplicator.follow import Follower
from deduplicator.hot import without_collection
from deduplicator.intermediate import Intermediate, Purge
from deduplicator.joined import Joined
from deduplicator.keeper import InGroup
from deduplicator.limit import CallLimit
from deduplicator.loop import Loop
from deduplicator.partitions import Partitions
from deduplicator.provenance import sifting
from deduplicator.start import Starter

log = logging.getLogger(__name__)
HOUSEKEEPING_S, UNTIL_READY_S = 1.0, 0.2
LOOK_AFTER_S = 5.0
ANSWER_S = 5.0
"""A cluster that needs longer is away."""


class SharedOut:
    """Sees to it that every partition is somebody's, once after the start.

    A static member that comes back is given what it had, without a new assignment (KIP-345). When it leads the group, and partitions or topics were
    added while it was away, nobody would notice: librdkafka asks for an assignment when a number of partitions changes, and it has seen one number only.
    When the leader joins again, the broker has the partitions shared out anew; when another member does, it is given what it had.
    """

    def __init__(self, starter: Starter, intermediate: Intermediate) -> None:
        self.starter = starter
        self.intermediate = intermediate
        self.due = machine.monotonic() + LOOK_AFTER_S
        self.done = intermediate.incremental
        """With group.protocol=consumer the broker itself shares out."""

    def see(self) -> None:
        """Look, when it is time."""
        if self.done or machine.monotonic() < self.due or not self.intermediate.is_member:
            return
        nobodys = self.starter.nobodys()
        self.done, self.due = nobodys == [], machine.monotonic() + LOOK_AFTER_S
        if nobodys:
            log.info("partitions %s are nobody's: joining the group again", nobodys)
            self.intermediate.join()


@dataclass(slots=True)
class Worker:
    """What one process is made of, and what is done beside the rounds; `build` makes it."""

    settings: Settings
    routes: dict[str, Route]
    """By intermediate topic; sources that appear later are added."""
    pulse: Pulse
    destination: Destination
    starter: Starter
    partitions: Partitions
    intermediate: Intermediate
    loop: Loop
    follower: Follower
    shared_out: SharedOut
    joined: Joined
    purge: Purge
    ends: Probe[dict[Place, int]]
    """Where the intermediate topics end."""
    asked: set[Place] = field(default_factory=set)
    """The partitions whose ends were asked for last."""

    def housekeeping(self) -> None:
        """What is done once a second, between two rounds."""
        self._take_up(self.follower.new(self.routes.values()))
        if self.ends.answered_within(2 * HOUSEKEEPING_S):  # these questions wait for their answers
            self.shared_out.see()
            self.joined.see()
        next_offsets = {place: state.next_offset for place, state in self.partitions.assigned.items()}
        known = self.ends.answer
        if next_offsets.keys() != self.asked:
            self.asked = set(next_offsets)
            self.ends.wake()
        if all(known.get(place, math.inf) <= next_offset for place, next_offset in next_offsets.items()):
            self.loop.failed = False  # somebody has done it
        reason = self._waits_for(known)
        if reason:
            self.pulse.wait(reason)
        else:
            self._report(next_offsets, known)
            self.pulse.ready()
        self.purge.up_to(next_offsets)
        self.destination.watch({self.routes[place.topic].destination_topic: state.frontier.destination_topic_id
                                for place, state in self.partitions.assigned.items()})

    def _waits_for(self, known: Mapping[Place, int]) -> Reason | None:
        """What keeps this worker from its work."""
        if not self.ends.has_answered or not known.keys() >= self.partitions.assigned.keys():
            return "destination"
        if not self.destination.answers():
            return "database"
        if not self.intermediate.is_member:
            return "group"
        return "retry" if self.loop.failed or self.partitions.waiting else None

    def _report(self, next_offsets: Mapping[Place, int], known: Mapping[Place, int]) -> None:
        """The lag; the client can know of a later end than the last answer."""
        for place, next_offset in next_offsets.items():
            seen = self.intermediate.waiting(place, next_offset)
            ends = [max(0, known[place] - next_offset)] if place in known else []
            waiting = max([*ends, *([seen] if seen is not None else [])], default=None)
            if waiting is not None:
                self.pulse.lag.report(place, waiting, self.loop.through_ms.get(place))

    def _take_up(self, new: Collection[Route]) -> None:
        """Sources that have appeared."""
        if not new:
            return
        self.destination.take_up(new)
        log.info("new: %s", ", ".join(map(str, new)))
        for route in new:
            self.routes[route.intermediate_topic] = route
            self.starter.appeared.add(route.intermediate_topic)
        self.intermediate.follow(self.routes)

    def close(self) -> None:
        """Leave no open transaction, and the group."""
        self.follower.close()
        self.ends.close()
        self.pulse.wait("start")
        self.destination.close()
        self.intermediate.close()


def build(settings: Settings, number: int) -> Worker:
    """A worker, everything after what it depends on; it asks to be a member of the group last."""
    routes = {route.intermediate_topic: route for route in topics.prepare(source_candidates.select_answering(settings))}
    pulse = Pulse("deduplicator", number)
    partitions = Partitions()
    consumer = stage_two_consumer(settings, number)
    queue = compiled.queue(settings, routes.values(), consumer)
    COMPILED.labels(str(number)).set(queue is not None)
    intermediate = Intermediate(consumer, settings.text("deduplicator.group_protocol") == "consumer", partitions, queue)
    in_group = InGroup(settings, pulse)
    destination, keeper = destinations.made(settings, number, routes, in_group, intermediate.commit)
    destination.settle()  # before the frontier is read: what a predecessor left open is ended now
    points.at("two: initialised")
    starter = Starter(settings, routes, in_group, keeper)
    loop = Loop(settings, routes, partitions, intermediate, starter, destination, pulse, sifting(settings, CallLimit(pulse.beat)))
    if routes:
        intermediate.follow(routes)
    asker = reader(settings.destination, settings)  # each thread has clients of its own
    ends = Probe[dict[Place, int]](lambda: positions.read_ends(asker, list(partitions.assigned), ANSWER_S), {}, HOUSEKEEPING_S + ANSWER_S)
    ends.start("ends", HOUSEKEEPING_S)
    return Worker(settings, routes, pulse, destination, starter, partitions, intermediate, loop, Follower(settings, routes.values()),
                  SharedOut(starter, intermediate), Joined(in_group.group, intermediate), Purge(in_group.admin), ends)


def run(settings: Settings, number: int, stopping: Callable[[], bool]) -> None:
    """Work until `stopping()`; a Stop or Restart error when it cannot go on. Leaves no open transaction."""
    points.at("two: started")
    with permissions.explain_refusals(settings, "run deduplicator"):
        _work(settings, number, stopping)


def _work(settings: Settings, number: int, stopping: Callable[[], bool]) -> None:
    permissions.check_permissions(settings, "run deduplicator")
    worker = build(settings, number)
    due = 0.0
    try:
        with without_collection() as collect:
            while not stopping():
                worker.loop.round()
                if machine.monotonic() >= due:
                    collect()
                    worker.housekeeping()
                    due = machine.monotonic() + (UNTIL_READY_S if worker.pulse.reason else HOUSEKEEPING_S)
    finally:
        points.at("two: stopping")
        worker.close()
    log.info("stage two has stopped; no transaction is open")
