"""One process of stage two: creates the clients, runs the loop until it is told to stop, ends with
the right exit code.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

from common import clock, failpoints, source_pool
from common.background_probe import Probe
from common.errors import Stop
from common.kafka import partition_offsets, permissions, topic_creation
from common.kafka.client_errors import note_error
from common.kafka.clients import create_reader, create_stage_two_consumer
from common.liveness import Liveness, Reason
from common.metrics import COMPILED
from common.route_states import HaltedRoutes, describe_halted
from common.routes import Route, TopicPartition, name_some
from common.settings import Settings, user_code
from deduplicator import destination_factory
from deduplicator.destination import UNCOUNTED, Destination
from deduplicator.frontiers.committed_frontiers import WorkerGroup
from deduplicator.frontiers.start import PartitionStarter
from deduplicator.gc_control import pause_gc
from deduplicator.intermediate_consumer import Intermediate
from deduplicator.loop import Loop
from deduplicator.partitions import Partitions
from deduplicator.provenance import build_record_filter
from deduplicator.purge import Purge
from deduplicator.topic_discovery import TopicDiscovery
from deduplicator.user_call_timeout import CallLimit

log = logging.getLogger(__name__)
HOUSEKEEPING_S, UNTIL_READY_S = 1.0, 0.2
CHECK_INTERVAL_S = 5.0
CHECK_COMMITS_S = 3.0
"""How often it is looked whether the group still has its offsets."""
ANSWER_TIMEOUT_S = 5.0
"""A cluster that needs longer is unreachable."""


class UnassignedPartitions:
    """Checks after the start, and after each assignment, that no partition is unassigned; if one
    is, joins the group again.

    A static member that comes back gets its old assignment, without a rebalance (KIP-345): a
    process that was restarted, or one that has lost its connection for as long as its session
    lasts. If it is the group's leader, and partitions or topics were added while it was away,
    nobody would notice: librdkafka asks for a rebalance when a number of partitions changes, and it
    has seen only one number. When the leader joins again, the broker starts a rebalance; when
    another member joins again, it gets its old assignment.
    """

    def __init__(self, starter: PartitionStarter, intermediate: Intermediate) -> None:
        self.starter = starter
        self.intermediate = intermediate
        self.due = clock.monotonic() + CHECK_INTERVAL_S
        self.assignments = intermediate.assignments
        """How many there were when the time of the next check was set."""

    def check(self) -> None:
        """Check, if it is time."""
        intermediate = self.intermediate
        if intermediate.assignments != self.assignments:
            self.assignments = intermediate.assignments
            self.due = clock.monotonic() + CHECK_INTERVAL_S
        if clock.monotonic() < self.due or not intermediate.is_member:
            return
        unassigned = self.starter.find_unassigned()
        self.due = math.inf if unassigned == [] else clock.monotonic() + CHECK_INTERVAL_S
        if unassigned:
            log.info("partitions %s are unassigned: joining the group again", unassigned)
            self.intermediate.join_group()


class LostCommits:
    """Checks regularly that the group still has the offsets, and with them the frontiers, of the
    assigned partitions; starts those again that it has lost.

    The group deletes its offsets together with a topic, sometimes later than the topic itself. This
    worker knows the frontiers still, because nobody else moves those of its partitions.
    """

    def __init__(self, starter: PartitionStarter, partitions: Partitions) -> None:
        self.starter = starter
        self.partitions = partitions
        self.due = clock.monotonic() + CHECK_COMMITS_S

    def check(self) -> None:
        """Check, if it is time, between two rounds, while no commit is unfinished."""
        if clock.monotonic() < self.due:
            return
        self.due = clock.monotonic() + CHECK_COMMITS_S
        lost = self.starter.find_lost_commits(self.partitions.assigned)
        if lost:
            log.warning(
                "the group has lost the offsets of %s, with its topic or without: committing the"
                " frontiers again",
                name_some(lost),
            )
            self.partitions.start_again(lost)


@dataclass(slots=True)
class Worker:
    """The parts of one process, and its work between the rounds; `build` builds it."""

    settings: Settings
    routes: dict[str, Route]
    """By intermediate topic; sources that appear later are added."""
    liveness: Liveness
    destination: Destination
    starter: PartitionStarter
    partitions: Partitions
    intermediate: Intermediate
    loop: Loop
    topic_discovery: TopicDiscovery
    unassigned: UnassignedPartitions
    lost_commits: LostCommits
    purge: Purge
    ends: Probe[dict[TopicPartition, int]]
    """The end offsets of the intermediate topics."""
    halted: HaltedRoutes
    requested_partitions: set[TopicPartition] = field(default_factory=set)
    """The partitions whose end offsets were requested last."""

    def run_housekeeping(self) -> None:
        """Once a second, between two rounds, while no commit is unfinished."""
        self._hold_halted()
        self._add_routes(self.topic_discovery.find_new_routes(self.routes.values()))
        # these checks block until the cluster answers
        if self.ends.has_answered_within(2 * HOUSEKEEPING_S):
            self.unassigned.check()
            self.lost_commits.check()
        assigned = self.partitions.assigned
        next_offsets = {tp: partition.next_offset for tp, partition in assigned.items()}
        end_offsets = self.ends.answer
        if next_offsets.keys() != self.requested_partitions:
            self.requested_partitions = set(next_offsets)
            self.ends.wake()
        if all(
            end_offsets.get(tp, math.inf) <= next_offset for tp, next_offset in next_offsets.items()
        ):
            self.loop.has_failed = False  # these partitions have no record left to copy
        reason = self._find_wait_reason(end_offsets)
        if reason:
            self.liveness.report_waiting(reason)
        else:
            self._report_lag(next_offsets, end_offsets)
            self.liveness.set_ready()
        # in a topic that was created again, a position can be beyond the end
        self.purge.delete_committed(
            {tp: min(offset, end_offsets.get(tp, offset)) for tp, offset in next_offsets.items()}
        )
        self.destination.check_for_loss(
            {
                partition.route.destination_topic: partition.frontier.destination_topic_id
                for partition in assigned.values()
            },
            {
                partition.destination_tp: partition.output.last_offset
                for partition in assigned.values()
                if partition.output != UNCOUNTED
            },
        )

    def halt(self, stop: Stop) -> None:
        """Stop the route that this error is of, and go on with the others; raises it when the
        service has to end (`on_stop`).
        """
        self.halted.stop(stop)
        self.loop.recover(stop)
        self._hold_halted()

    def _hold_halted(self) -> None:
        """Read no more of the routes that are halted, and begin again with those that are not."""
        before = self.partitions.halted
        if self.partitions.hold(self.halted.topics):
            self.intermediate.start_fetching()
        if self.partitions.halted != before:
            log.info(describe_halted(self.halted.halted) or "no topic is halted any more")
        self.halted.report()

    def _find_wait_reason(self, end_offsets: Mapping[TopicPartition, int]) -> Reason | None:
        """What this worker waits for; None when it can work."""
        if not self.ends.has_answered or not end_offsets.keys() >= self.partitions.assigned.keys():
            return "destination"
        if not self.destination.is_answering():
            return "database"
        if not self.intermediate.has_assignment():
            return "group"
        return "retry" if self.loop.has_failed or self.partitions.waiting else None

    def _report_lag(
        self, next_offsets: Mapping[TopicPartition, int], end_offsets: Mapping[TopicPartition, int]
    ) -> None:
        self.liveness.lag.keep_only(next_offsets)
        for tp, next_offset in next_offsets.items():
            lag = self.intermediate.find_lag(tp, next_offset, end_offsets.get(tp, -1))
            if lag is not None:
                last_timestamp_ms = self.partitions.assigned[tp].last_timestamp_ms
                self.liveness.lag.report(tp, lag, last_timestamp_ms)

    def _add_routes(self, new_routes: Collection[Route]) -> None:
        """Copy source topics that have appeared."""
        if not new_routes:
            return
        self.destination.check_batches(new_routes)
        log.info("new: %s", name_some([*new_routes]))
        self.halted.add(new_routes)
        for route in new_routes:
            self.routes[route.intermediate_topic] = route
            self.starter.new_topics.add(route.intermediate_topic)
        self.intermediate.subscribe(self.routes)

    def close(self, is_planned: bool) -> None:
        """End without an open transaction; at a planned end the group is left."""
        self.topic_discovery.close()
        self.ends.close()
        self.halted.close()
        self.liveness.report_waiting("start")
        self.loop.close()
        self.intermediate.close(is_planned)


def build(settings: Settings, number: int) -> Worker:
    """A worker, each part after those that it depends on; joining the group comes last."""
    user_code.check_user_code(settings)
    partitions, liveness = Partitions(), Liveness("deduplicator", number)
    create_topics = partial(
        source_pool.try_sources, settings, topic_creation.prepare_topics, liveness.beat
    )
    routes = {route.intermediate_topic: route for route in create_topics()}
    halted = HaltedRoutes(settings)
    halted.start(routes.values(), liveness.beat)
    partitions.hold(halted.topics)
    intermediate = Intermediate(
        create_stage_two_consumer(settings, number),
        partitions,
        partial(note_error, settings.destination_cluster),
    )
    consumer_group = WorkerGroup(settings, liveness)
    destination, frontier_store = destination_factory.build_destination(
        settings, number, routes, consumer_group, intermediate.commit
    )
    # before the frontier is read: it ends the transactions that a predecessor left open
    destination.resolve_in_doubt()
    failpoints.hit("two: initialised")
    COMPILED.labels(str(number)).set(destination.can_forward)
    starter = PartitionStarter(settings, routes, consumer_group, frontier_store, create_topics)
    loop = Loop(
        settings,
        routes,
        partitions,
        intermediate,
        starter,
        destination,
        liveness,
        build_record_filter(settings, CallLimit(liveness.beat)),
    )
    if routes:
        intermediate.subscribe(routes)
    return Worker(
        settings,
        routes,
        liveness,
        destination,
        starter,
        partitions,
        intermediate,
        loop,
        TopicDiscovery(settings, routes.values(), halted),
        UnassignedPartitions(starter, intermediate),
        LostCommits(starter, partitions),
        Purge(consumer_group.admin),
        _watch_ends(settings, partitions),
        halted,
    )


def _watch_ends(settings: Settings, partitions: Partitions) -> Probe[dict[TopicPartition, int]]:
    """The end offsets of the assigned partitions, which a thread with a client of its own reads."""
    reader = create_reader(settings.destination_cluster, settings)
    ends = Probe[dict[TopicPartition, int]](
        lambda: partition_offsets.read_ends(reader, list(partitions.assigned), ANSWER_TIMEOUT_S),
        {},
        HOUSEKEEPING_S + ANSWER_TIMEOUT_S,
    )
    ends.start("ends", HOUSEKEEPING_S)
    return ends


def run(settings: Settings, number: int, stopping: Callable[[], bool]) -> None:
    """Work until `stopping()`, or a Stop or Restart error; no transaction stays open."""
    failpoints.hit("two: started")
    with permissions.explain_refusals(settings, "run deduplicator"):
        _run_worker(settings, number, stopping)


def _run_worker(settings: Settings, number: int, stopping: Callable[[], bool]) -> None:
    worker = build(settings, number)
    due = 0.0
    try:
        with pause_gc() as collect:
            while not stopping():
                is_due = clock.monotonic() >= due
                try:
                    worker.loop.run_round(finish=is_due)
                    if is_due:
                        collect()
                        worker.run_housekeeping()
                except Stop as stop:
                    worker.halt(stop)
                if is_due:
                    due = clock.monotonic() + (
                        UNTIL_READY_S if worker.liveness.reason else HOUSEKEEPING_S
                    )
    finally:
        failpoints.hit("two: stopping")
        worker.close(is_planned=stopping())
    log.info("stage two has stopped; no transaction is open")
