"""Injects faults into the intermediate topics, and says which exit codes of the service each fault
allows or requires.

Each function returns a description of what it did, or an empty string when there was nothing to do.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from common.errors import FrontierLost, NotComparable, TopicsUnfit
from common.routes import TopicPartition
from simulator import log_reader, operator
from simulator.child import Child
from simulator.fault_helpers import choose_partition, run_without_workers, truncate_log
from simulator.fault_kinds import INTERMEDIATE_RECREATED

if TYPE_CHECKING:
    from simulator.faults import FaultInjector


def _choose_intermediate_partition(
    injector: FaultInjector, generator: random.Random
) -> TopicPartition | None:
    """A partition of an intermediate topic, if it exists."""
    route, partition = choose_partition(injector, generator)
    tp = route.get_intermediate(partition)
    return tp if log_reader.has_partition(injector.system.destination, tp) else None


def _delete_intermediate_records(
    injector: FaultInjector, generator: random.Random, _: Child | None
) -> str:
    tp = _choose_intermediate_partition(injector, generator)
    if tp is None:
        return ""
    destination = injector.system.destination
    if generator.random() < 0.5:
        frozen_s = generator.uniform(0.0, 20.0)
        run_without_workers(
            injector, frozen_s, lambda: destination.delete_records(*tp, destination.log(*tp).end)
        )
        _append_source_records(injector, generator, tp, frozen_s + generator.uniform(0.0, 8.0))
        return f"{tp}: all, after {frozen_s:.1f} s without a worker"
    offset = generator.randint(0, destination.log(*tp).end)
    destination.delete_records(*tp, offset)
    return f"{tp} begins at {offset}"


def _append_source_records(
    injector: FaultInjector, generator: random.Random, intermediate: TopicPartition, after_s: float
) -> None:
    """The source partition of an intermediate partition gets more records, some time later."""
    system, count = injector.system, generator.randint(1, 6)
    if system.candidates or system.plan.stop_at_end:
        return
    route = next(route for route in system.routes if route.intermediate_topic == intermediate.topic)

    def append() -> None:
        if not (system.source.is_down or system.is_source_topic_missing):
            system.append_records(route.get_source(intermediate.partition), count)

    injector.call_later(after_s, append)


def _truncate_intermediate_topic(
    injector: FaultInjector, generator: random.Random, _: Child | None
) -> str:
    tp = _choose_intermediate_partition(injector, generator)
    if tp is None or not injector.system.destination.log(*tp).end:
        return ""
    # under the same leader epoch (a single broker whose whole disk was set back), nobody could see
    # it
    lost = truncate_log(injector.system.destination, tp, generator, may_keep_epoch=False)
    return f"{tp}: {len(lost)}"


def _compact_intermediate_topic(
    injector: FaultInjector, generator: random.Random, _: Child | None
) -> str:
    tp = _choose_intermediate_partition(injector, generator)
    if tp is None:
        return ""
    injector.allowed_exit_codes.add(TopicsUnfit.exit_code)

    def compact() -> None:
        injector.system.destination.alter_config(tp.topic, cleanup_policy="compact")
        injector.system.destination.compact(*tp)

    frozen_s = generator.uniform(0.0, 60.0)
    run_without_workers(injector, frozen_s, compact)
    return f"{tp}, after {frozen_s:.1f} s without a worker"


def _recreate_intermediate(
    injector: FaultInjector, generator: random.Random, _: Child | None
) -> str:
    """The group's offsets go with the old topic. Where records were copied, and the worker reads
    its frontier again before it has committed it again, it is lost. The offsets of an open
    transaction go too: if it is committed, it is torn.
    """
    system = injector.system
    route = system.choose_route(generator)
    # with `latest`, a copy that has no frontier and no record begins elsewhere
    is_impossible = system.plan.start == "latest" or system.is_stopped_by_operator
    if is_impossible or route.intermediate_topic not in system.destination.topics:
        return ""
    if system.plan.filter_setting:  # `reo recover` refuses
        injector.allowed_exit_codes |= {FrontierLost.exit_code, NotComparable.exit_code}
    system.recovered_exit_codes.add(FrontierLost.exit_code)

    coordinator_delay_s = generator.choice((0.0, generator.uniform(0.0, 10.0)))

    def recreate() -> str:
        topic = system.destination.topics[route.intermediate_topic]
        system.destination.delete_topic(topic.name, is_known_to_coordinators=False)
        system.destination.create_topic(topic.name, len(topic.logs), topic.overrides)
        if coordinator_delay_s:
            injector.call_later(coordinator_delay_s, lambda: _forget_offsets(injector, topic.name))
            return f"{topic.name}, its offsets {coordinator_delay_s:.1f} s later"
        _forget_offsets(injector, topic.name)
        return topic.name

    way = generator.choice(("stopped", "frozen", "live"))
    if way == "stopped":
        system.stop_for_operator(lambda system: operator.change_while_stopped(system, recreate))
        injector.schedule_end(operator.RESTART_WITHIN_S, lambda: None)
        return f"{route.intermediate_topic}, while the service is stopped"
    if way == "frozen":  # records stay unread, and a run goes on
        frozen_s = generator.uniform(0.0, 20.0)
        run_without_workers(injector, frozen_s, recreate)
        return f"{route.intermediate_topic}, after {frozen_s:.1f} s without a worker"
    return recreate()


def _forget_offsets(injector: FaultInjector, topic: str) -> None:
    """The coordinator deletes the group's offsets on a topic, also those of open transactions,
    which are torn if they are committed.
    """
    system = injector.system
    group = system.destination.groups.get(system.settings.application)
    injector.torn_partitions |= {
        partition_key
        for offsets in (group.pending.values() if group else ())
        for partition_key in offsets
        if partition_key[0] == topic
    }
    system.recovered_exit_codes.add(FrontierLost.exit_code)
    system.destination.forget_offsets(topic)


INJECTORS: dict[str, Callable[[FaultInjector, random.Random, Child | None], str]] = {
    "unread intermediate records deleted": _delete_intermediate_records,
    "newest intermediate records lost": _truncate_intermediate_topic,
    "intermediate topic compacted": _compact_intermediate_topic,
    INTERMEDIATE_RECREATED: _recreate_intermediate,
}
