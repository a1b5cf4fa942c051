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
from tools.simulator import log_reader, operator
from tools.simulator.child import Child
from tools.simulator.fault_helpers import choose_partition, run_without_workers, truncate_log
from tools.simulator.fault_kinds import INTERMEDIATE_RECREATED, PARTITION_ADDED
from tools.simulator.kafka.log import Log
from tools.simulator.kafka.log_records import NewRecord, Record
from tools.simulator.kafka.topics import Topic

if TYPE_CHECKING:
    from tools.simulator.fault_injector import FaultInjector

NEWEST_READ = 2
"""How many records that stage two has read are changed with those that it has not read."""


def _choose_intermediate_partition(
    injector: FaultInjector, generator: random.Random
) -> TopicPartition | None:
    """A partition of an intermediate topic, if it exists."""
    route, partition = choose_partition(injector, generator)
    tp = route.get_intermediate(partition)
    return tp if log_reader.has_partition(injector.system.destination, tp) else None


def _purge(injector: FaultInjector, generator: random.Random, _: Child | None) -> str:
    tp = _choose_intermediate_partition(injector, generator)
    if tp is None:
        return ""
    destination = injector.system.destination
    if generator.random() < 0.5:
        return _run_on_unread(
            injector,
            generator,
            tp,
            lambda: destination.log(*tp).delete(-1),
        )
    offset = generator.randint(0, destination.log(*tp).end)
    destination.log(*tp).delete(offset)
    return f"{tp} begins at {offset}"


def _run_on_unread(
    injector: FaultInjector,
    generator: random.Random,
    tp: TopicPartition,
    change: Callable[[], object],
) -> str:
    """Change a partition when its records have not been read for a while. Some time later, the
    source gets more.
    """
    frozen_s = generator.uniform(0.0, 20.0)

    def change_if_there() -> None:
        if log_reader.has_partition(injector.system.destination, tp):
            change()

    run_without_workers(injector, frozen_s, change_if_there)
    _append_source_records(injector, generator, tp, frozen_s + generator.uniform(0.0, 8.0))
    return f"{tp}, after {frozen_s:.1f} s without a worker"


def _list_newest(injector: FaultInjector, tp: TopicPartition) -> list[Record]:
    """Some of the newest records of a partition: those that stage two has not read, and a few
    more.
    """
    log = injector.system.destination.log(*tp)
    group = injector.system.destination.groups.get(injector.system.settings.application)
    position = group.offsets.committed.get(tp, (0, ""))[0] if group else 0
    return log.records[log.index(max(log.begin, min(position, log.end) - NEWEST_READ)) :]


def _change_records(
    injector: FaultInjector,
    generator: random.Random,
    change: Callable[[random.Random, Log, list[Record]], str],
) -> str:
    """Change the newest records of a partition, at once or when they were not read for a while."""
    tp = _choose_intermediate_partition(injector, generator)
    if tp is None:
        return ""

    def change_newest() -> str:
        return change(generator, injector.system.destination.log(*tp), _list_newest(injector, tp))

    if generator.random() < 0.5:
        return _run_on_unread(injector, generator, tp, change_newest)
    what = change_newest()
    return what and f"{tp}: {what}"


def _lose_single(injector: FaultInjector, generator: random.Random, _: Child | None) -> str:
    """A damaged segment, or a cleaner: records in the middle are gone, the others keep their
    offsets. The last one of a partition cannot be lost alone.
    """

    def lose(generator: random.Random, log: Log, newest: list[Record]) -> str:
        lost = [record.offset for record in newest[:-1] if generator.random() < 1 / 2]
        log.remove(lost)
        return f"{lost}" if lost else ""

    return _change_records(injector, generator, lose)


def _repeat(injector: FaultInjector, generator: random.Random, _: Child | None) -> str:
    """Records are written again, as by a producer that is not idempotent, or by an operator who
    restores a topic.
    """

    def repeat(generator: random.Random, log: Log, newest: list[Record]) -> str:
        repeated = generator.sample(newest, generator.randint(0, len(newest)))
        log.append((NewRecord(None, one.value, None, one.timestamp_ms) for one in repeated), None)
        return f"{[one.offset for one in repeated]} again" if repeated else ""

    return _change_records(injector, generator, repeat)


def _reorder(injector: FaultInjector, generator: random.Random, _: Child | None) -> str:
    def reorder(generator: random.Random, log: Log, newest: list[Record]) -> str:
        values = [record.value for record in newest]
        generator.shuffle(values)
        for record, value in zip(newest, values, strict=True):
            log.records[log.index(record.offset)] = record._replace(value=value)
        return f"{len(values)} records" if len(values) > 1 else ""

    return _change_records(injector, generator, reorder)


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
    """A new leader does not have the newest records, or a disk was set back."""
    tp = _choose_intermediate_partition(injector, generator)
    if tp is None or not injector.system.destination.log(*tp).end:
        return ""
    lost = truncate_log(injector.system.destination, tp, generator)
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
        injector.system.destination.log(*tp).compact()

    frozen_s = generator.uniform(0.0, 60.0)
    run_without_workers(injector, frozen_s, compact)
    return f"{tp}, after {frozen_s:.1f} s without a worker"


def _recreate_intermediate(
    injector: FaultInjector, generator: random.Random, _: Child | None
) -> str:
    """The topic is deleted, and created again at once, later, or by the service. The group's
    offsets go with the old one: where records were copied, and no worker remembers the frontier
    when it has to be loaded, it is lost. The offsets of an open transaction go too: if it is
    committed, it is torn.
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
    if any(fault.kind == PARTITION_ADDED for fault in system.plan.faults):
        # without the intermediate topic, a destination with fewer partitions is not extended
        injector.allowed_exit_codes.add(TopicsUnfit.exit_code)
    coordinator_delay_s = generator.choice((0.0, generator.uniform(0.0, 10.0)))
    absent_s = generator.choice((0.0, 0.0, generator.uniform(0.0, 15.0), None))

    def recreate() -> str:
        topic = system.destination.topics.get(route.intermediate_topic)
        if topic is None:
            return ""
        system.destination.delete_topic(topic.name, is_known_to_coordinators=False)
        if absent_s is not None:
            injector.call_later(absent_s, lambda: _create_again(injector, topic))
        injector.call_later(coordinator_delay_s, lambda: _forget_offsets(injector, topic.name))
        return f"{topic.name}, absent for {absent_s}, its offsets for {coordinator_delay_s:.1f} s"

    way = generator.choice(("stopped", "frozen", "live", "live"))
    if way == "stopped":
        system.stop_for_operator(lambda system: operator.change_while_stopped(system, recreate))
        injector.schedule_end(operator.RESTART_WITHIN_S, lambda: None)
        return f"{route.intermediate_topic}, while the service is stopped"
    if way == "frozen":  # records stay unread, and a run goes on
        frozen_s = generator.uniform(0.0, 20.0)
        run_without_workers(injector, frozen_s, recreate)
        return f"{route.intermediate_topic}, after {frozen_s:.1f} s without a worker"
    return recreate()


def _create_again(injector: FaultInjector, topic: Topic) -> None:
    """Create the topic, unless the service has done it."""
    destination = injector.system.destination
    if topic.name not in destination.topics:
        destination.create_topic(topic.name, len(topic.logs), topic.overrides)


def _forget_offsets(injector: FaultInjector, topic: str) -> None:
    """The coordinator deletes the group's offsets on a topic, also those of open transactions,
    which are torn if they are committed.
    """
    system = injector.system
    group = system.destination.groups.get(system.settings.application)
    injector.torn_partitions |= {
        partition_key
        for offsets in (group.offsets.pending.values() if group else ())
        for partition_key in offsets
        if partition_key[0] == topic
    }
    system.recovered_exit_codes.add(FrontierLost.exit_code)
    system.destination.forget_offsets(topic)


INJECTORS: dict[str, Callable[[FaultInjector, random.Random, Child | None], str]] = {
    "intermediate records purged": _purge,
    "newest intermediate records lost": _truncate_intermediate_topic,
    "single intermediate records lost": _lose_single,
    "intermediate records repeated": _repeat,
    "intermediate records reordered": _reorder,
    "intermediate topic compacted": _compact_intermediate_topic,
    INTERMEDIATE_RECREATED: _recreate_intermediate,
}
