"""One process of stage two: makes the clients, goes round the loop until told to stop, ends with the right exit code."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence

from confluent_kafka import TopicPartition

from common import candidates, permissions, points, topics
from common.kafka_clients import stage_two_consumer
from common.lag import Lag
from common.metrics import Pulse
from common.routes import Route
from common.settings import Settings
from deduplicator import destinations
from deduplicator.follow import Follower
from deduplicator.hot import without_collection
from deduplicator.intermediate import Intermediate, Purge
from deduplicator.joined import Joined
from deduplicator.keeper import InGroup
from deduplicator.loop import Loop
from deduplicator.provenance import sifting
from deduplicator.start import Starter

log = logging.getLogger(__name__)
HOUSEKEEPING_S = 1.0
LOOK_AFTER_S = 5.0


class SharedOut:
    """Sees to it that every partition is somebody's, once after the start.

    A static member that comes back is given what it had, without a new assignment (KIP-345). When it leads the group, and partitions or topics were
    added while it was away, nobody would notice: librdkafka asks for an assignment when a number of partitions changes, and it has seen one number only.
    When the leader joins again, the broker has the partitions shared out anew; when another member does, it is given what it had.
    """

    def __init__(self, starter: Starter, intermediate: Intermediate) -> None:
        self.starter = starter
        self.intermediate = intermediate
        self.due = time.monotonic() + LOOK_AFTER_S
        self.done = intermediate.incremental
        """With group.protocol=consumer the broker itself shares out."""

    def see(self) -> None:
        """Look, when it is time."""
        if self.done or time.monotonic() < self.due or not self.intermediate.is_member:
            return
        nobodys = self.starter.nobodys()
        self.done, self.due = nobodys == [], time.monotonic() + LOOK_AFTER_S
        if nobodys:
            log.info("partitions %s are nobody's: joining the group again", nobodys)
            self.intermediate.join()


class Worker:
    """The clients of one process, and what is done beside the rounds."""

    def __init__(self, settings: Settings, number: int) -> None:
        self.settings = settings
        self.routes = {route.intermediate_topic: route for route in topics.prepare(candidates.answering(settings))}
        """By intermediate topic; sources that appear later are added."""
        self.pulse = Pulse("deduplicator", number)
        in_group = InGroup(settings, self.pulse.beat)
        self.destination, keeper = destinations.made(settings, number, self.routes, in_group, self._repeat)
        self.destination.settle()  # before the frontier is read: what a predecessor left open is ended now
        points.at("two: initialised")
        self.starter = Starter(settings, self.routes, in_group, keeper)
        self.loop = Loop(settings, self.routes, self.starter, self.destination, self.pulse, sifting(settings))
        self.intermediate = self.loop.intermediate = Intermediate(
            stage_two_consumer(settings, number), settings.text("deduplicator.group_protocol") == "consumer", self.loop.given, self.loop.taken)
        if self.routes:
            self.intermediate.follow(self.routes)
        self.follower = Follower(settings, self.routes.values())
        self.shared_out = SharedOut(self.starter, self.intermediate)
        self.joined = Joined(in_group.group, self.intermediate)
        self.purge = Purge(in_group.admin)
        self.lag = Lag("deduplicator")

    def _repeat(self, offsets: Sequence[TopicPartition]) -> None:
        """For a destination that keeps the frontiers itself."""
        self.intermediate.commit(offsets)

    def housekeeping(self) -> None:
        """What is done once a second, between two rounds."""
        self._take_up(self.follower.new(self.routes.values()))
        self.shared_out.see()
        self.joined.see()
        next_offsets = {place: state.next_offset for place, state in self.loop.assigned.items()}
        for place, next_offset in next_offsets.items():
            waiting = self.intermediate.waiting(place, next_offset)
            if waiting is not None:
                self.lag.report(place, waiting, self.loop.through_ms.get(place))
        self.purge.up_to(next_offsets)
        self.destination.watch({self.routes[place.topic].destination_topic: state.frontier.destination_topic_id for place, state in self.loop.assigned.items()})
        self.pulse.ready(self.intermediate.is_member)

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
        self.pulse.ready(False)
        self.destination.close()
        self.intermediate.close()


def run(settings: Settings, number: int, stopping: Callable[[], bool]) -> None:
    """Work until `stopping()`; a Stop or Restart error when it can not go on. Leaves no open transaction."""
    points.at("two: started")
    with permissions.named(settings, "run deduplicator"):
        _work(settings, number, stopping)


def _work(settings: Settings, number: int, stopping: Callable[[], bool]) -> None:
    permissions.check(settings, "run deduplicator")
    worker = Worker(settings, number)
    due = 0.0
    try:
        with without_collection() as collect:
            while not stopping():
                worker.loop.round()
                if time.monotonic() >= due:
                    due = time.monotonic() + HOUSEKEEPING_S
                    collect()
                    worker.housekeeping()
    finally:
        points.at("two: stopping")
        worker.close()
    log.info("stage two has stopped; no transaction is open")
