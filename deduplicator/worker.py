"""One process of stage two: makes the clients, goes round the loop until told to stop, ends with the right exit code."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

from common import points, topics
from common.kafka_clients import Lost, admin, stage_two_consumer, transactional_producer
from common.metrics import Pulse
from common.settings import Settings
from deduplicator.destination import KafkaDestination
from deduplicator.hot import without_collection
from deduplicator.intermediate import Intermediate, Purge
from deduplicator.loop import Loop
from deduplicator.start import Starter
from deduplicator.transaction import InTurn, TransactionalProducer

log = logging.getLogger(__name__)
HOUSEKEEPING_S = 1.0
LOOK_AFTER_S = 5.0


class SharedOut:
    """Sees to it that every partition is somebody's, once after the start.

    A static member that comes back is given what it had, without a new assignment (KIP-345). When it leads the group, and partitions were added
    while it was away, nobody would notice: librdkafka asks for an assignment when the number of partitions changes, and this one has seen one number only.
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


def run(settings: Settings, worker: int, stopping: Callable[[], bool]) -> None:
    """Work until `stopping()`; a Stop or Restart error when it can not go on. Leaves no open transaction."""
    points.at("two: started")
    routes = {route.intermediate_topic: route for route in topics.prepare(settings)}
    pulse = Pulse("deduplicator", worker)
    destination_admin = admin(settings.destination, settings)
    batch_bytes_max = min(topics.bytes_max(destination_admin, settings.destination, route.destination_topic) for route in routes.values())
    timeout_s = settings.number("deduplicator.transaction_timeout_ms") / 1000

    def producer(letter: str) -> TransactionalProducer:
        lost = Lost(f"librdkafka.deduplicator-{worker}-{letter}")
        make = partial(transactional_producer, settings, worker, letter, batch_bytes_max, lost)
        return TransactionalProducer(make, timeout_s, pulse.beat, lost.by)
    producers = InTurn(producer("a"), producer("b"))
    producers.initialise()  # before the frontier is read: what a predecessor left open is ended now
    points.at("two: initialised")
    starter = Starter(settings, routes, pulse.beat)
    loop = Loop(settings, routes, starter, KafkaDestination(producers), pulse)
    loop.intermediate = Intermediate(
        stage_two_consumer(settings, worker), routes,
        settings.text("deduplicator.group_protocol") == "consumer", loop.given, loop.taken)
    shared_out = SharedOut(starter, loop.intermediate)
    purge = Purge(destination_admin)
    due = 0.0
    try:
        with without_collection() as collect:
            while not stopping():
                loop.round()
                if time.monotonic() >= due:
                    due = time.monotonic() + HOUSEKEEPING_S
                    collect()
                    shared_out.see()
                    next_offsets = {place: state.next_offset for place, state in loop.assigned.items()}
                    loop.intermediate.report_lag(next_offsets)
                    purge.up_to(next_offsets)
                    pulse.ready(loop.intermediate.is_member)
    finally:
        points.at("two: stopping")
        pulse.ready(False)
        producers.close()
        loop.intermediate.close()
    log.info("stage two has stopped; no transaction is open")
