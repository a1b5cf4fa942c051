"""One process of stage two: makes the clients, goes round the loop until told to stop, ends with the right exit code."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable
from functools import partial

from common import candidates, permissions, points, topics
from common.errors import StageFailed
from common.kafka_clients import Lost, admin, stage_two_consumer, transactional_producer
from common.lag import Lag
from common.metrics import Pulse
from common.routes import Route
from common.settings import Settings
from deduplicator.destination import KafkaDestination
from deduplicator.follow import Follower
from deduplicator.hot import without_collection
from deduplicator.intermediate import Intermediate, Purge
from deduplicator.joined import Joined
from deduplicator.loop import Loop
from deduplicator.provenance import sifting
from deduplicator.start import Starter
from deduplicator.transaction import InTurn, TransactionalProducer

log = logging.getLogger(__name__)
HOUSEKEEPING_S = 1.0
LOOK_AFTER_S = 5.0
BATCH_BYTES_MAX = 1_048_588
"""Of a topic, by default (max.message.bytes): while there is none to ask."""


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
        self.admin = admin(settings.destination, settings)
        self.batch_bytes_max = self._batch_bytes_max(self.routes.values())
        timeout_s = settings.number("deduplicator.transaction_timeout_ms") / 1000

        def producer(letter: str) -> TransactionalProducer:
            lost = Lost(f"librdkafka.deduplicator-{number}-{letter}")
            make = partial(transactional_producer, settings, number, letter, self.batch_bytes_max, lost)
            return TransactionalProducer(make, timeout_s, self.pulse.beat, lost.by)
        self.producers = InTurn(producer("a"), producer("b"))
        self.producers.initialise()  # before the frontier is read: what a predecessor left open is ended now
        points.at("two: initialised")
        self.starter = Starter(settings, self.routes, self.pulse.beat)
        self.loop = Loop(settings, self.routes, self.starter, KafkaDestination(self.producers), self.pulse, sifting(settings))
        self.intermediate = self.loop.intermediate = Intermediate(
            stage_two_consumer(settings, number), settings.text("deduplicator.group_protocol") == "consumer", self.loop.given, self.loop.taken)
        if self.routes:
            self.intermediate.follow(self.routes)
        self.follower = Follower(settings, self.routes.values())
        self.shared_out = SharedOut(self.starter, self.intermediate)
        self.joined = Joined(self.starter.group, self.intermediate)
        self.purge = Purge(self.admin)
        self.lag = Lag("deduplicator")

    def _batch_bytes_max(self, routes: Iterable[Route]) -> int:
        return min((topics.bytes_max(self.admin, self.settings.destination, route.destination_topic) for route in routes), default=BATCH_BYTES_MAX)

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
        self.pulse.ready(self.intermediate.is_member)

    def _take_up(self, new: Collection[Route]) -> None:
        """Sources that have appeared."""
        if not new:
            return
        if self._batch_bytes_max(new) < self.batch_bytes_max:
            raise StageFailed(f"one of {[route.destination_topic for route in new]} takes smaller batches than this worker's producers make: starting again")
        log.info("new: %s", ", ".join(map(str, new)))
        for route in new:
            self.routes[route.intermediate_topic] = route
            self.starter.appeared.add(route.intermediate_topic)
        self.intermediate.follow(self.routes)

    def close(self) -> None:
        """Leave no open transaction, and the group."""
        self.follower.close()
        self.pulse.ready(False)
        self.producers.close()
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
