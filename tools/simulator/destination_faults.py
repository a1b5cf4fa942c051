"""Injects faults into the destination and the topics that are copied to, and says which exit codes
of the service each fault allows or requires.

Each function returns a description of what it did, or an empty string when there was nothing to do.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from common.errors import (
    DestinationTruncated,
    FrontierLost,
    HangingTransaction,
    SourceRefused,
)
from common.routes import Route, TopicPartition
from tools.simulator import log_reader, operator
from tools.simulator.child import Child
from tools.simulator.fault_helpers import (
    QUIET_AFTER_S,
    choose_partition,
    has_frontiers,
    is_copy_quiet,
    make_unavailable,
    run_without_workers,
    truncate_log,
)
from tools.simulator.fault_kinds import (
    DESTINATION_RECREATED,
    FILTER_CHANGED,
)
from tools.simulator.record_filter import CONDITIONS

if TYPE_CHECKING:
    from tools.simulator.fault_injector import FaultInjector


def _make_destination_unavailable(
    injector: FaultInjector, generator: random.Random, _: Child | None
) -> str:
    return make_unavailable(injector, generator, injector.system.destination)


def _drop_end_txn(injector: FaultInjector, generator: random.Random, _: Child | None) -> str:
    """The coordinator of one producer answers no EndTxn, while all other requests are answered."""
    seconds = generator.choice((1.0, 5.0, 20.0)) * generator.uniform(0.5, 1.5)
    injector.coordinator_outcome = generator.choice(("lost", "lost", "answer lost"))
    injector.coordinator_away_until_s = injector.system.schedule.now + seconds
    injector.coordinator_client = ""
    injector.schedule_end(seconds, lambda: None)
    return f"for {seconds:.1f} s, {injector.coordinator_outcome}"


FEW_OFFSETS = 4
"""A late marker of a transaction can take the offset of its lost record in the new topic. Then only
the topic id shows the loss, up to a second later.
"""


def _recreate_destination(
    injector: FaultInjector, generator: random.Random, _: Child | None
) -> str:
    route = injector.system.choose_route(generator)
    topic = injector.system.destination.topics.get(route.destination_topic)
    if topic is None or any(0 < log.end < FEW_OFFSETS for log in topic.logs):
        return ""
    if injector.system.candidates:  # a candidate is compared with the records of the copy
        injector.allowed_exit_codes.add(SourceRefused.exit_code)

    def recreate() -> str:
        return _recreate_topic(injector, route)

    # a start copies the topic from the beginning, if it does not have the output of a killed worker
    injector.allowed_exit_codes.add(FrontierLost.exit_code)
    is_wanted = injector.system.plan.stop_at_end or generator.random() < 0.5
    if is_wanted and not injector.system.is_stopped_by_operator:
        injector.system.stop_for_operator(
            lambda system: operator.change_while_stopped(system, recreate)
        )
        injector.call_later(operator.RESTART_WITHIN_S, lambda: None)
        return f"{route.destination_topic}, while the service is stopped"
    # a worker that runs ends, and so does a worker that is assigned a partition from a running one
    injector.allowed_exit_codes.add(DestinationTruncated.exit_code)
    return recreate()


def _recreate_topic(injector: FaultInjector, route: Route) -> str:
    """With as many partitions as it has now: it may have got some since the fault was drawn."""
    count = log_reader.count_partitions(injector.system.destination, route.destination_topic)
    if not count:
        return ""
    injector.system.destination.delete_topic(route.destination_topic)
    injector.system.destination.create_topic(route.destination_topic, count)
    injector.judge.reset_destination(route.source_topic)
    return f"{route.destination_topic}, {count} partitions"


def _truncate_destination(
    injector: FaultInjector, generator: random.Random, _: Child | None
) -> str:
    """The newest records are lost now, or later, when the copy is quiet: then nothing else shows
    the loss.
    """
    route, partition = choose_partition(injector, generator)
    tp = route.get_destination(partition)
    if (
        not log_reader.has_partition(injector.system.destination, tp)
        or not injector.system.destination.log(*tp).end
    ):
        return ""
    if generator.random() < 0.5:
        injector.call_later(
            QUIET_AFTER_S,
            lambda: (
                is_copy_quiet(injector)
                and _lose_destination_records(injector, generator, tp, is_calm=True)
            ),
        )
        return f"{tp}: if the copy is quiet in {QUIET_AFTER_S:.0f} s"
    return f"{tp}: {_lose_destination_records(injector, generator, tp, is_calm=injector.is_calm)}"


def _lose_destination_records(
    injector: FaultInjector, generator: random.Random, tp: TopicPartition, *, is_calm: bool
) -> int:
    """How many offsets are lost."""
    injector.judge.is_destination_history_lost = True
    # with compaction, or a fault that follows, the loss may not be seen: other records can take
    # these offsets before the check
    is_compacted = (
        "compact" in injector.system.destination.topics[tp.topic].config["cleanup.policy"]
    )
    is_certain = is_calm and injector.is_last_fault and not is_compacted
    read_result = log_reader.read_committed(injector.system.destination, tp, 0)
    lost_records = truncate_log(injector.system.destination, tp, generator)
    # when a marker is lost, its transaction stays open
    exit_codes = {DestinationTruncated.exit_code, HangingTransaction.exit_code}
    if injector.system.candidates:  # a candidate is compared with the records of the copy
        exit_codes.add(SourceRefused.exit_code)
    injector.allowed_exit_codes |= exit_codes
    visible_offsets = {offset for offset, _ in read_result[0]} if read_result else set()
    if is_certain and any(record.offset in visible_offsets for record in lost_records):
        injector.required_exit_codes = exit_codes
    if generator.random() < 0.5:  # only the check at the start can see it
        injector.kill_processes("worker")
    return len(lost_records)


HELD_S = (1.0, 20.0)


def _change_filter(injector: FaultInjector, generator: random.Random, _: Child | None) -> str:
    """An operator stops the service, changes `filter.sql`, and starts it again: what is on its way
    was filtered otherwise. Mostly the old run's envelopes do not arrive before the new run begins.
    """
    system = injector.system
    if not has_frontiers(injector) or system.is_stopped_by_operator:
        return ""
    condition = generator.choice([one for one in CONDITIONS if one != system.filter_sql])
    frozen_s = generator.choice((0.0, generator.uniform(0.0, 20.0)))
    held_s = generator.choice((math.inf, math.inf, generator.uniform(*HELD_S)))
    for attempt in system.list_attempts():
        if attempt.can_read():
            attempt.held_until_s = system.schedule.now + held_s
    for source in system.list_source_partitions():
        if not (system.plan.stop_at_end or system.candidates or system.source.is_down):
            system.append_records(source, generator.randint(0, 4))
    is_copied_anew = generator.random() < 1 / 4 and system.plan.start != "latest"

    def change() -> None:
        system.change_filter(condition)
        if is_copied_anew:
            injector.allowed_exit_codes.add(FrontierLost.exit_code)
            injector.injected_kinds.append(DESTINATION_RECREATED)
            for route in system.routes:
                _recreate_topic(injector, route)
            system.conditions.clear()
            for source in system.list_source_partitions():
                injector.judge.apply_filter(source, 0)

    run_without_workers(
        injector,
        frozen_s,
        lambda: system.stop_for_operator(
            lambda system: operator.change_while_stopped(system, change)
        ),
    )
    injector.schedule_end(frozen_s + operator.RESTART_WITHIN_S, lambda: None)
    return (
        f"after {frozen_s:.1f} s without a worker, to {condition!r}, envelopes held for"
        f" {held_s:.1f} s{', copied anew' if is_copied_anew else ''}"
    )


INJECTORS: dict[str, Callable[[FaultInjector, random.Random, Child | None], str]] = {
    "destination away": _make_destination_unavailable,
    "EndTxn not answered": _drop_end_txn,
    "destination recreated": _recreate_destination,
    "newest destination records lost": _truncate_destination,
    FILTER_CHANGED: _change_filter,
}
