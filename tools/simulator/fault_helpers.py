"""What the faults of clusters and topics have in common: a cluster that is away, a log that loses
its newest records, a partition at random, workers that stand still, whether frontiers are
committed, and whether the copy is quiet.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from common.routes import Route, TopicPartition
from tools.simulator.kafka import Cluster
from tools.simulator.kafka.log_records import Record

if TYPE_CHECKING:
    from tools.simulator.fault_injector import FaultInjector


def make_unavailable(injector: FaultInjector, generator: random.Random, cluster: Cluster) -> str:
    """The cluster is away for a while."""
    seconds = generator.choice((0.3, 3.0, 15.0, 60.0)) * generator.uniform(0.5, 1.5)
    cluster.set_down(True)
    injector.schedule_end(seconds, lambda: cluster.set_down(False))
    return f"for {seconds:.1f} s"


def choose_partition(injector: FaultInjector, generator: random.Random) -> tuple[Route, int]:
    """A route and one of its partitions at random."""
    route = injector.system.choose_route(generator)
    return route, generator.randrange(injector.system.count_copied(route))


def choose_source_partition(injector: FaultInjector, generator: random.Random) -> TopicPartition:
    """A partition of a source topic at random."""
    route, partition = choose_partition(injector, generator)
    return route.get_source(partition)


def truncate_log(
    cluster: Cluster, tp: TopicPartition, generator: random.Random, *, may_keep_epoch: bool = True
) -> list[Record]:
    """Remove some of a partition's newest offsets. Returns the lost records."""
    log = cluster.log(*tp)
    count = generator.randint(1, min(4, log.end))
    return log.truncate(count, is_same_epoch=generator.random() < 0.3 and may_keep_epoch)


def has_frontiers(injector: FaultInjector, source_topic: str = "") -> bool:
    """Whether the group has committed frontiers, which identify the source topic; without a topic,
    of any.
    """
    intermediate_topic = (
        injector.system.find_route(source_topic).intermediate_topic if source_topic else ""
    )
    system = injector.system
    return any(
        intermediate_topic in ("", topic)
        for topic, _ in system.destination.group(system.settings.application).offsets.committed
    )


def has_frontier(injector: FaultInjector, source: TopicPartition) -> bool:
    """Whether the group has one of this source partition."""
    system = injector.system
    intermediate = system.find_intermediate(source)
    return intermediate in system.destination.group(system.settings.application).offsets.committed


QUIET_AFTER_S, QUIET_S = 30.0, 10.0
"""A fault of a quiet copy happens this long after its call, if nothing has happened for QUIET_S."""


def is_copy_quiet(injector: FaultInjector) -> bool:
    """Whether everything is copied, a query runs, and nothing has happened for QUIET_S."""
    system, judge = injector.system, injector.judge
    since_s = system.schedule.now - QUIET_S
    return (
        system.service_exit_code is None
        and not system.is_loading
        and system.written_at_s < since_s
        and injector.is_quiet_since(since_s)
        and any(query.can_read and query.started_at_s < since_s for query in system.queries)
        and not judge.is_history_lost
        and judge.is_complete()
    )


def run_without_workers(
    injector: FaultInjector, seconds: float, action: Callable[[], object]
) -> None:
    """Freeze the workers for this time, so that records stay unread, and then call `action` before
    they go on.
    """
    workers = [
        child.process
        for child in injector.system.children
        if child.name.startswith("worker") and child.process and child.process.is_alive
    ]

    def end() -> None:
        action()
        for process in workers:
            injector.system.schedule.thaw(process)

    for process in workers:
        injector.system.schedule.freeze(process)
    injector.schedule_end(seconds, end)
