"""Injects faults into the source, its candidates and its topics, and says which exit codes of the
service each fault allows or requires.

Each function returns a description of what it did, or an empty string when there was nothing to do.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from common.errors import SourceRecreated, TopicMissing
from common.routes import TopicPartition
from tools.simulator import log_reader
from tools.simulator.child import Child
from tools.simulator.fault_helpers import (
    QUIET_AFTER_S,
    QUIET_S,
    choose_source_partition,
    has_frontier,
    has_frontiers,
    is_copy_quiet,
    make_unavailable,
)
from tools.simulator.fault_kinds import PARTITION_ADDED, TOPIC_ADDED

if TYPE_CHECKING:
    from tools.simulator.fault_injector import FaultInjector


def _make_source_unavailable(
    injector: FaultInjector, generator: random.Random, _: Child | None
) -> str:
    return make_unavailable(
        injector,
        generator,
        (
            generator.choice(injector.system.candidates)
            if injector.system.candidates
            else injector.system.source
        ),
    )


def _pause_candidate_feed(
    injector: FaultInjector, generator: random.Random, _: Child | None
) -> str:
    candidate, seconds = (
        generator.choice(injector.system.source_clusters.candidates),
        generator.uniform(1, 60),
    )
    candidate.is_paused = True
    injector.schedule_end(seconds, lambda: setattr(candidate, "is_paused", False))
    return f"{candidate.cluster.name} for {seconds:.1f} s"


def _change_leaders(injector: FaultInjector, generator: random.Random, _: Child | None) -> str:
    cluster = generator.choice(injector.system.candidates)
    route = injector.system.choose_route(generator)
    for log in cluster.topics[route.source_topic].logs:
        log.change_leader()
    return f"{cluster.name}, {route.source_topic}"


def _has_copied_every_partition(injector: FaultInjector) -> bool:
    """Whether the copy has a record of every partition: candidates are compared with these
    records.
    """
    return all(
        injector.judge.find_last_copied_offset(tp) >= 0
        for tp in injector.system.list_source_partitions()
    )


def _recreate_candidate(injector: FaultInjector, generator: random.Random, _: Child | None) -> str:
    """Recreate the topic of a candidate that no query reads, now or later: the service cannot know
    what Spark reads before its next check. Then, with an even chance, the others go away.
    """
    if generator.random() < 0.5:
        injector.call_later(RECREATED_AFTER_S, lambda: _recreate_unread(injector, generator))
        return f"in {RECREATED_AFTER_S:.0f} s"
    return _recreate_unread(injector, generator)


RECREATED_AFTER_S = 15.0


def _recreate_unread(injector: FaultInjector, generator: random.Random) -> str:
    system = injector.system
    clusters_read = [
        system.find_cluster(query.plan.settings.source_cluster)
        for query in system.queries
        if query.can_read
    ]
    other_candidates = [
        candidate
        for candidate in system.source_clusters.candidates
        if candidate.cluster not in clusters_read
    ]
    if not clusters_read or not other_candidates or not _has_copied_every_partition(injector):
        return ""
    candidate, topic = (
        generator.choice(other_candidates),
        system.choose_route(generator).source_topic,
    )
    count = system.source_clusters.recreate(candidate, topic)
    if generator.random() < 0.5:
        for other in system.candidates:
            if other is not candidate.cluster and not other.is_down:
                make_unavailable(injector, generator, other)
    return f"{candidate.cluster.name}, {topic}: {count} other records"


def _delete_copied_source_records(
    injector: FaultInjector, generator: random.Random, _: Child | None
) -> str:
    """Retention: what is copied is deleted, or later, in a quiet source, everything."""
    source = choose_source_partition(injector, generator)
    if generator.random() < 0.5:
        injector.call_later(QUIET_AFTER_S, lambda: _delete_quiet_records(injector, source))
        return f"{source}: all, if it is quiet in {QUIET_AFTER_S:.0f} s"
    offset = injector.judge.find_last_copied_offset(source) + 1
    if offset > injector.system.source.log(*source).end:  # the source lost these records
        return ""
    injector.system.source.log(*source).delete(offset)
    injector.on_evidence_gone()  # the last copied record is deleted, the same one or another
    return f"{source} begins at {offset}"


def _delete_quiet_records(injector: FaultInjector, source: TopicPartition) -> None:
    """When everything is copied and was quiet for a while, delete the markers and the records of
    aborted transactions too, and kill stage one: stage two has committed that nothing is left.
    """
    system, judge = injector.system, injector.judge
    is_quiet = (
        # what filter.sql left out is known when a batch of Spark ends
        system.plan.filter_setting != "filter.sql"
        and is_copy_quiet(injector)
        and has_frontier(injector, source)
        and 0
        <= judge.find_last_copied_offset(source)
        == judge.find_last_copied_offset(source, QUIET_S)
    )
    if is_quiet:
        log = system.source.log(*source)
        log.delete(log.last_stable_offset)
        injector.kill_processes("stage one")


def _compact_source(injector: FaultInjector, generator: random.Random, _: Child | None) -> str:
    return compact_partition(injector, choose_source_partition(injector, generator))


def compact_partition(injector: FaultInjector, source: TopicPartition) -> str:
    """Compact a source partition: the removed records may be missing in the copy. Nothing happens
    when it does not exist now.
    """
    if not log_reader.has_partition(injector.system.source, source):
        return ""
    offsets_before = log_reader.list_data_offsets(injector.system.source, source)
    injector.system.source.log(*source).compact()
    removed = frozenset(offsets_before) - frozenset(
        log_reader.list_data_offsets(injector.system.source, source)
    )
    injector.judge.allow_missing(source, removed)
    return f"{source}: {sorted(removed)}"


def _add_partition(injector: FaultInjector, generator: random.Random, _: Child | None) -> str:
    topic = injector.system.choose_route(generator).source_topic
    count = log_reader.count_partitions(injector.system.source, topic)
    injector.system.source.add_partitions(topic, count + 1)
    if not has_frontiers(injector, topic):
        # the copy of this topic has not begun
        injector.system.ends_at_start[TopicPartition(topic, count)] = 0
    return f"{topic} has {count + 1}"


def _add_topic(injector: FaultInjector, _: random.Random, __: Child | None) -> str:
    route = injector.system.add_topic() if injector.system.plan.has_pattern else None
    if route and not has_frontiers(injector):
        injector.system.ends_at_start |= {
            tp: 0
            for tp in injector.system.list_source_partitions()
            if tp.topic == route.source_topic
        }
    return route.source_topic if route else ""


def _recreate_source(injector: FaultInjector, generator: random.Random, _: Child | None) -> str:
    topic = injector.system.choose_route(generator).source_topic
    count = log_reader.count_partitions(injector.system.source, topic)
    if not has_frontiers(injector, topic):
        return ""
    injector.judge.is_source_history_lost = True
    injector.required_exit_codes = {SourceRecreated.exit_code, TopicMissing.exit_code}
    overrides = injector.system.source.topics[topic].overrides
    injector.system.source.delete_topic(topic)
    injector.schedule_end(
        generator.choice((0.0, 0.1, 5.0)),
        lambda: injector.system.source.create_topic(topic, count, overrides),
    )
    return f"{topic}, {count} partitions"


INJECTORS: dict[str, Callable[[FaultInjector, random.Random, Child | None], str]] = {
    "source away": _make_source_unavailable,
    "records committed at the source are deleted": _delete_copied_source_records,
    "source compacted": _compact_source,
    PARTITION_ADDED: _add_partition,
    TOPIC_ADDED: _add_topic,
    "source recreated": _recreate_source,
    "candidate not fed": _pause_candidate_feed,
    "leaders of a candidate changed": _change_leaders,
    "candidate recreated": _recreate_candidate,
}
