"""Injects faults into clusters and topics, and says which exit codes of the service each fault
allows or requires.

Each function returns a description of what it did, or an empty string when there was nothing to do.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from common.errors import (
    DestinationTruncated,
    FrontierLost,
    HangingTransaction,
    SourceRecreated,
    SourceRefused,
    SourceTruncated,
    TopicMissing,
    TopicsUnfit,
)
from common.routes import Place, Route
from simulator import logs, operator
from simulator.kafka import Cluster
from simulator.kafka.log_records import DATA, Record
from simulator.plan import FRONTIERS_DELETED, TOPIC_ADDED
from simulator.system import Child

if TYPE_CHECKING:
    from simulator.faults import FaultInjector


def _make_unavailable(injector: FaultInjector, generator: random.Random, cluster: Cluster) -> str:
    seconds = generator.choice((0.3, 3.0, 15.0, 60.0)) * generator.uniform(0.5, 1.5)
    cluster.set_down(True)
    injector.schedule_end(seconds, lambda: cluster.set_down(False))
    return f"for {seconds:.1f} s"


def _make_source_unavailable(
    injector: FaultInjector, generator: random.Random, _: Child | None
) -> str:
    return _make_unavailable(
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
    cluster.change_leaders(route.source_topic)
    return f"{cluster.name}, {route.source_topic}"


def _has_copied_every_partition(injector: FaultInjector) -> bool:
    """Whether the copy has a record of every partition: candidates are compared with these
    records.
    """
    return all(
        injector.judge.find_last_copied_offset(place) >= 0
        for place in injector.system.list_source_partitions()
    )


def _recreate_candidate(injector: FaultInjector, generator: random.Random, _: Child | None) -> str:
    """Recreate the topic of a candidate that no query reads: the service cannot know what Spark
    reads before its next check.
    """
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
    return (
        f"{candidate.cluster.name}, {topic}: {system.source_clusters.recreate(candidate, topic)}"
        " other records"
    )


def _make_destination_unavailable(
    injector: FaultInjector, generator: random.Random, _: Child | None
) -> str:
    return _make_unavailable(injector, generator, injector.system.destination)


def _choose_partition(injector: FaultInjector, generator: random.Random) -> tuple[Route, int]:
    route = injector.system.choose_route(generator)
    return route, generator.randrange(
        logs.count_partitions(injector.system.source, route.source_topic)
    )


def _choose_source_partition(injector: FaultInjector, generator: random.Random) -> Place:
    route, partition = _choose_partition(injector, generator)
    return route.source(partition)


def _choose_intermediate_partition(
    injector: FaultInjector, generator: random.Random
) -> Place | None:
    """A partition of an intermediate topic, if it exists."""
    route, partition = _choose_partition(injector, generator)
    place = route.intermediate(partition)
    return place if logs.has_partition(injector.system.destination, place) else None


def _truncate_log(
    cluster: Cluster, place: Place, generator: random.Random, *, may_keep_epoch: bool = True
) -> list[Record]:
    """Remove some of a partition's newest offsets. Returns the lost records."""
    count = generator.randint(1, min(4, cluster.log(*place).end))
    return cluster.truncate(
        *place, count, is_same_epoch=generator.random() < 0.3 and may_keep_epoch
    )


def _delete_copied_source_records(
    injector: FaultInjector, generator: random.Random, _: Child | None
) -> str:
    source = _choose_source_partition(injector, generator)
    offset = injector.judge.find_last_copied_offset(source) + 1
    if offset > injector.system.source.log(*source).end:  # the source lost these records
        return ""
    injector.system.source.delete_records(*source, offset)
    return f"{source} begins at {offset}"


def _compact_source(injector: FaultInjector, generator: random.Random, _: Child | None) -> str:
    source = _choose_source_partition(injector, generator)
    offsets_before = logs.list_data_offsets(injector.system.source, source)
    injector.system.source.compact(*source)
    removed = frozenset(offsets_before) - frozenset(
        logs.list_data_offsets(injector.system.source, source)
    )
    injector.judge.allow_missing(source, removed)
    return f"{source}: {sorted(removed)}"


def _add_partition(injector: FaultInjector, generator: random.Random, _: Child | None) -> str:
    topic = injector.system.choose_route(generator).source_topic
    count = logs.count_partitions(injector.system.source, topic)
    injector.system.source.add_partitions(topic, count + 1)
    if not _has_frontiers(injector):
        injector.system.ends_at_start[Place(topic, count)] = 0  # the copy has not begun
    return f"{topic} has {count + 1}"


def _add_topic(injector: FaultInjector, _: random.Random, __: Child | None) -> str:
    route = injector.system.add_topic() if injector.system.plan.has_pattern else None
    if route and not _has_frontiers(injector):
        injector.system.ends_at_start |= {
            place: 0
            for place in injector.system.list_source_partitions()
            if place.topic == route.source_topic
        }
    return route.source_topic if route else ""


def _delete_unread_source_records(
    injector: FaultInjector, generator: random.Random, _: Child | None
) -> str:
    source = _choose_source_partition(injector, generator)
    end = injector.system.source.log(*source).end
    offset = generator.randint(0, end)
    injector.judge.allow_missing(source, range(offset))
    # nobody can know whether records that were never read were visible
    if offset > injector.judge.find_last_copied_offset(source) + 1:
        injector.allowed_exit_codes.add(SourceTruncated.exit_code)
    injector.system.source.delete_records(*source, offset)
    return (
        f"{source} begins at {offset} of {end}, copied to"
        f" {injector.judge.find_last_copied_offset(source)}"
    )


SAMPLED_S = 2.0
"""Stage one compares what was copied as of its previous sample: a loss that is over between two
samples, and took only what was copied since, it cannot see.
"""


def _truncate_source(injector: FaultInjector, generator: random.Random, _: Child | None) -> str:
    place = _choose_source_partition(injector, generator)
    log = injector.system.source.log(*place)
    end_before = log.end
    if not end_before:
        return ""
    copied, compared = (
        injector.judge.find_last_copied_offset(place, before_s) for before_s in (0.0, SAMPLED_S)
    )
    read_to = max(
        injector.system.spark_read_to.get(place, 0), injector.judge.get_highest_first_offset(place)
    )
    _truncate_log(injector.system.source, place, generator)
    if log.end < read_to:  # some of the lost records are copied, or can be in flight
        injector.judge.is_source_history_lost = True
        is_certain = log.end <= compared and injector.is_calm
        (injector.required_exit_codes if is_certain else injector.allowed_exit_codes).add(
            SourceTruncated.exit_code
        )
    # the marker of a transaction that was read is lost: whether it counts, nobody can say
    elif log.last_stable_offset < read_to:
        injector.judge.is_source_history_lost = True
        injector.allowed_exit_codes.add(SourceTruncated.exit_code)
    else:
        injector.judge.reread_source(place)
    return f"{place}: {end_before - log.end} of {end_before}, read to {read_to}, copied to {copied}"


def _recreate_source(injector: FaultInjector, generator: random.Random, _: Child | None) -> str:
    topic = injector.system.choose_route(generator).source_topic
    count = logs.count_partitions(injector.system.source, topic)
    if not _has_frontiers(injector, topic):
        return ""
    injector.judge.is_source_history_lost = True
    injector.required_exit_codes = {SourceRecreated.exit_code, TopicMissing.exit_code}
    injector.system.source.delete_topic(topic)
    injector.schedule_end(
        generator.choice((0.0, 0.1, 5.0)), lambda: injector.system.source.create_topic(topic, count)
    )
    return f"{topic}, {count} partitions"


def _has_frontiers(injector: FaultInjector, source_topic: str = "") -> bool:
    """Whether a group has committed frontiers, which identify the source topic; without a topic, of
    any.
    """
    intermediate_topic = (
        injector.system.find_route(source_topic).intermediate_topic if source_topic else ""
    )
    return any(
        intermediate_topic in ("", topic)
        for group in injector.system.destination.groups.values()
        for topic, _ in group.offsets
    )


def _delete_intermediate_records(
    injector: FaultInjector, generator: random.Random, _: Child | None
) -> str:
    place = _choose_intermediate_partition(injector, generator)
    if place is None:
        return ""
    offset = generator.randint(0, injector.system.destination.log(*place).end)
    injector.system.destination.delete_records(*place, offset)
    return f"{place} begins at {offset}"


def _truncate_intermediate_topic(
    injector: FaultInjector, generator: random.Random, _: Child | None
) -> str:
    place = _choose_intermediate_partition(injector, generator)
    if place is None or not injector.system.destination.log(*place).end:
        return ""
    # under the same leader epoch (a single broker whose whole disk was set back), nobody could see
    # it
    lost = _truncate_log(injector.system.destination, place, generator, may_keep_epoch=False)
    return f"{place}: {len(lost)}"


def _compact_intermediate_topic(
    injector: FaultInjector, generator: random.Random, _: Child | None
) -> str:
    place = _choose_intermediate_partition(injector, generator)
    if place is None:
        return ""
    injector.allowed_exit_codes.add(TopicsUnfit.exit_code)
    injector.system.destination.alter_config(place.topic, cleanup_policy="compact")
    return f"{place}: {injector.system.destination.compact(*place)} records are gone"


FEW_OFFSETS = 4
"""A late marker of a transaction can take the offset of its lost record in the new topic. Then only
the topic id shows the loss, up to a second later.
"""


def _recreate_destination(
    injector: FaultInjector, generator: random.Random, _: Child | None
) -> str:
    route = injector.system.choose_route(generator)
    count = logs.count_partitions(injector.system.destination, route.destination_topic)
    if not count or any(
        0 < log.end < FEW_OFFSETS
        for log in injector.system.destination.topics[route.destination_topic].logs
    ):
        return ""
    injector.system.destination.delete_topic(route.destination_topic)
    injector.system.destination.create_topic(route.destination_topic, count)
    injector.judge.reset_destination(route.source_topic)
    # a worker that runs ends, and so does a worker that is assigned a partition from a running one;
    # a start copies the topic from the beginning
    injector.allowed_exit_codes |= {DestinationTruncated.exit_code, FrontierLost.exit_code}
    if injector.system.candidates:  # a candidate is compared with the records of the copy
        injector.allowed_exit_codes.add(SourceRefused.exit_code)
    return f"{route.destination_topic}, {count} partitions"


def _truncate_destination(
    injector: FaultInjector, generator: random.Random, _: Child | None
) -> str:
    route, partition = _choose_partition(injector, generator)
    place = route.destination(partition)
    if (
        not logs.has_partition(injector.system.destination, place)
        or not injector.system.destination.log(*place).end
    ):
        return ""
    injector.judge.is_destination_history_lost = True
    stable = injector.system.destination.log(*place).last_stable_offset
    lost_records = _truncate_log(injector.system.destination, place, generator)
    # when a marker is lost, its transaction stays open
    exit_codes = {DestinationTruncated.exit_code, HangingTransaction.exit_code}
    if injector.system.candidates:  # a candidate is compared with the records of the copy
        exit_codes.add(SourceRefused.exit_code)
    injector.allowed_exit_codes |= exit_codes
    # with another fault, other records can take these offsets before the check
    is_only_fault = len(injector.system.plan.faults) == 1
    # a marker can hide the loss of records of an open transaction
    if is_only_fault and any(
        record.kind == DATA and record.offset < stable for record in lost_records
    ):
        injector.required_exit_codes = exit_codes
    return f"{place}: {len(lost_records)}"


def _delete_frontiers(injector: FaultInjector, _: random.Random, __: Child | None) -> str:
    if not _has_frontiers(injector) or injector.system.is_stopped_by_operator:
        return ""
    injector.system.recovered_exit_codes.add(FrontierLost.exit_code)
    injector.system.stop_for_operator(operator.delete_frontiers)
    injector.schedule_end(operator.RESTART_WITHIN_S, lambda: None)
    return "the operator stops the service"


INJECTORS: dict[str, Callable[[FaultInjector, random.Random, Child | None], str]] = {
    "source away": _make_source_unavailable,
    "destination away": _make_destination_unavailable,
    "records committed at the source are deleted": _delete_copied_source_records,
    "source compacted": _compact_source,
    "partition added": _add_partition,
    TOPIC_ADDED: _add_topic,
    "unread intermediate records deleted": _delete_intermediate_records,
    "newest intermediate records lost": _truncate_intermediate_topic,
    "destination recreated": _recreate_destination,
    "unread source records deleted": _delete_unread_source_records,
    "newest source records lost": _truncate_source,
    "source recreated": _recreate_source,
    "newest destination records lost": _truncate_destination,
    "intermediate topic compacted": _compact_intermediate_topic,
    "candidate not fed": _pause_candidate_feed,
    "leaders of a candidate changed": _change_leaders,
    "candidate recreated": _recreate_candidate,
    FRONTIERS_DELETED: _delete_frontiers,
}
