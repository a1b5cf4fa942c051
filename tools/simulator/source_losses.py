"""Injects the source's losses of records that are not copied yet, and says which exit codes of the
service each allows or requires.

A loss of records of which a statement exists (an envelope, or a row that Spark has read) cannot be
judged: the statement is of a history that was revised afterwards. Any other one has to be seen, and
the copy to be exact.

Each function returns a description of what it did, or an empty string when there was nothing to do.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from common.envelope import parse_head
from common.errors import SourceTruncated
from common.frontier import decode
from common.routes import TopicPartition
from tools.simulator.child import Child
from tools.simulator.fault_helpers import choose_source_partition, has_frontier, truncate_log
from tools.simulator.fault_kinds import INVISIBLE_LOST

if TYPE_CHECKING:
    from tools.simulator.fault_injector import FaultInjector
    from tools.simulator.spark_task import Task

SAMPLED_S = 2.0
"""Stage one compares what was copied as of its previous snapshot: a loss that is over between two
snapshots, and took only what was copied since, it cannot see.
"""
LOOKED_AT_S = (0.8, 3.0)
"""Stage one has looked at an idle partition after about this time."""
RECORD_AND_MARKER = 2


def _delete_unread_source_records(
    injector: FaultInjector, generator: random.Random, _: Child | None
) -> str:
    source = choose_source_partition(injector, generator)
    end = injector.system.source.log(*source).end
    offset = generator.randint(0, end)
    injector.judge.allow_missing(source, range(offset))
    # nobody can know whether records that were never read were visible
    if offset > injector.judge.find_last_copied_offset(source) + 1:
        injector.allowed_exit_codes.add(SourceTruncated.exit_code)
    injector.system.source.log(*source).delete(offset)
    return (
        f"{source} begins at {offset} of {end}, copied to"
        f" {injector.judge.find_last_copied_offset(source)}"
    )


def _find_stated_end(injector: FaultInjector, source: TopicPartition) -> int:
    """The offset after those of which stage two has accepted a statement, or still can: a row that
    a task has read, an envelope in the intermediate topic, or a frontier.
    """
    system = injector.system
    intermediate = system.find_intermediate(source)
    group = system.destination.groups.get(system.settings.application)
    commits = [group.offsets.committed, *group.offsets.pending.values()] if group else []
    frontiers = [
        decode(offsets[intermediate][1]).source_offset
        for offsets in commits
        if intermediate in offsets
    ]
    log = system.destination.find_log(*intermediate)
    written = [parse_head(record.value).through for record in log.records] if log else []
    read_through = system.read_through.get(source, -1)
    first_offset = injector.judge.get_highest_first_offset(source)
    return max(first_offset, 1 + max([read_through, *frontiers, *written]))


def _list_live_attempts(injector: FaultInjector, source: TopicPartition) -> list[Task]:
    return [
        attempt
        for query in injector.system.queries
        if query.can_read
        for attempt in query.attempts
        if attempt.source_partition == source and attempt.can_read()
    ]


def _truncate_source(injector: FaultInjector, generator: random.Random, _: Child | None) -> str:
    tp = choose_source_partition(injector, generator)
    log = injector.system.source.log(*tp)
    end_before = log.end
    if not end_before:
        return ""
    copied, compared = (
        injector.judge.find_last_copied_offset(tp, before_s) for before_s in (0.0, SAMPLED_S)
    )
    stated_end = _find_stated_end(injector, tp)
    may_grow_again = generator.random() < 0.5
    # when a log grows again under the same leader epoch, the broker was away
    truncate_log(injector.system.source, tp, generator, may_keep_epoch=not may_grow_again)
    end_after = log.end
    if log.end < stated_end:  # some of the lost records are copied, or can be in flight
        injector.judge.is_source_history_lost = True
        is_certain = log.end <= compared and injector.is_calm
        injector.allowed_exit_codes.add(SourceTruncated.exit_code)
        if is_certain:
            injector.required_exit_codes.add(SourceTruncated.exit_code)
            injector.loss_unseen_until_s = injector.system.schedule.now + SAMPLED_S
    # the marker of a transaction that was read is lost: whether it counts, nobody can say; and a
    # task goes on at its position, whatever comes before it now
    elif log.last_stable_offset < stated_end or any(
        attempt.position > log.end for attempt in _list_live_attempts(injector, tp)
    ):
        injector.judge.is_source_history_lost = True
        injector.allowed_exit_codes.add(SourceTruncated.exit_code)
    else:
        if injector.system.plan.stop_at_end:  # the end was after the lost records
            injector.allowed_exit_codes.add(SourceTruncated.exit_code)
        injector.judge.reread_source(tp)
    if may_grow_again:
        injector.system.append_records(tp, generator.randint(1, 6))
        if injector.system.plan.stop_at_end:  # the end was before these
            injector.judge.allow_missing(tp, range(end_before, log.end))
    return (
        f"{tp}: {end_before - end_after} of {end_before}, stated to {stated_end}, copied to"
        f" {copied}, grown to {log.end}"
    )


def _lose_invisible(injector: FaultInjector, generator: random.Random, _: Child | None) -> str:
    """The newest offsets are those of aborted transactions, and no task reads them for a while, so
    that stage one asks for them. Then a new leader does not have some of them, and gets records.
    """
    tp, system = choose_source_partition(injector, generator), injector.system
    if system.plan.stop_at_end or not has_frontier(injector, tp):
        return ""
    begin, count = system.source.log(*tp).end, generator.randint(2, 4)
    lost_after_s = generator.uniform(*LOOKED_AT_S)
    for attempt in _list_live_attempts(injector, tp):
        attempt.thaws_at = system.schedule.now + lost_after_s + generator.uniform(0.0, 15.0)
    for _number in range(count):
        system.append_aborted_record(tp)
    injector.schedule_end(lost_after_s, lambda: _lose_from(injector, generator, tp, begin, count))
    return f"{tp}, {count} aborted transactions from {begin} on"


def _lose_from(
    injector: FaultInjector,
    generator: random.Random,
    tp: TopicPartition,
    begin: int,
    transactions: int,
) -> None:
    """Lose some of these transactions, if nobody has said anything of them yet."""
    system = injector.system
    log = system.source.find_log(*tp)
    ends = [begin + RECORD_AND_MARKER * number for number in range(transactions)]
    positions = [attempt.position for attempt in _list_live_attempts(injector, tp)]
    lowest = max([_find_stated_end(injector, tp), *positions])
    ends = [end for end in ends if end >= lowest]
    if log is None or not ends or log.end != begin + RECORD_AND_MARKER * transactions:
        return
    end = generator.choice(ends)
    lost = log.end - end
    system.source.log(*tp).truncate(lost)
    injector.judge.reread_source(tp)
    system.append_records(tp, generator.randint(1, lost + 3))
    system.log_event(f"{tp} lost {lost} invisible offsets from {end} on, grown to {log.end}")


INJECTORS: dict[str, Callable[[FaultInjector, random.Random, Child | None], str]] = {
    "unread source records deleted": _delete_unread_source_records,
    "newest source records lost": _truncate_source,
    INVISIBLE_LOST: _lose_invisible,
}
