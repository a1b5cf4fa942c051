"""What is done to clusters and topics, and which end of the service it allows or demands.

Each harm says what it did; nothing when there was nothing to harm.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from common.errors import DestinationTruncated, FrontierLost, HangingTransaction, SourceRecreated, SourceRefused, SourceTruncated, TopicMissing, TopicsUnfit
from common.routes import Place
from simulator import logs, operator
from simulator.kafka import Cluster
from simulator.kafka.log import DATA, Record
from simulator.plan import FRONTIERS_DELETED
from simulator.system import COPY, PROXY, TOPIC, Child

if TYPE_CHECKING:
    from simulator.faults import Faults



def _away(faults: Faults, chance: random.Random, cluster: Cluster) -> str:
    seconds = chance.choice((0.3, 3.0, 15.0, 60.0)) * chance.uniform(0.5, 1.5)
    cluster.set_down(True)
    faults.later(seconds, lambda: cluster.set_down(False))
    return f"for {seconds:.1f} s"


def _source_away(faults: Faults, chance: random.Random, _: Child | None) -> str:
    return _away(faults, chance, chance.choice(faults.system.candidates) if faults.system.candidates else faults.system.source)


def _hold_candidate(faults: Faults, chance: random.Random, _: Child | None) -> str:
    candidate, seconds = chance.choice(faults.system.given.candidates), chance.uniform(1, 60)
    candidate.is_held = True
    faults.later(seconds, lambda: setattr(candidate, "is_held", False))
    return f"{candidate.cluster.name} for {seconds:.1f} s"


def _change_leaders(faults: Faults, chance: random.Random, _: Child | None) -> str:
    cluster = chance.choice(faults.system.candidates)
    cluster.change_leaders(TOPIC)
    return cluster.name


def _is_copied_everywhere(faults: Faults) -> bool:
    """Whether the copy has a record of every partition: by it a candidate is known."""
    return all(faults.judge.copied_to(partition) >= 0 for partition in range(logs.partitions(faults.system.source, TOPIC)))


def _recreate_candidate(faults: Faults, chance: random.Random, _: Child | None) -> str:
    """One that is not read from now: what Spark reads between this and the next look is not the service's to know."""
    system = faults.system
    read = [system.cluster_of(query.plan.settings.source) for query in system.queries if query.can_read]
    others = [candidate for candidate in system.given.candidates if candidate.cluster not in read]
    if not read or not others or not _is_copied_everywhere(faults):
        return ""
    candidate = chance.choice(others)
    return f"{candidate.cluster.name}: {system.given.recreate(candidate, TOPIC)} other records"


def _destination_away(faults: Faults, chance: random.Random, _: Child | None) -> str:
    return _away(faults, chance, faults.system.destination)


def _partition(faults: Faults, chance: random.Random) -> int:
    return chance.randrange(logs.partitions(faults.system.source, TOPIC))


def _written(faults: Faults, topic: str, chance: random.Random) -> Place | None:
    """A partition of the destination cluster's, if it is there."""
    place = Place(topic, _partition(faults, chance))
    return place if logs.has(faults.system.destination, place) else None


def _lose(cluster: Cluster, place: Place, chance: random.Random) -> list[Record]:
    """Some of a partition's newest offsets; the records that were there."""
    count = chance.randint(1, min(4, cluster.log(*place).end))
    return cluster.truncate(*place, count, is_same_epoch=chance.random() < 0.3)


def _retention(faults: Faults, chance: random.Random, _: Child | None) -> str:
    partition = _partition(faults, chance)
    offset = faults.judge.copied_to(partition) + 1
    faults.system.source.delete_records(TOPIC, partition, offset)
    return f"partition {partition} begins at {offset}"


def _compact(faults: Faults, chance: random.Random, _: Child | None) -> str:
    partition = _partition(faults, chance)
    before = logs.data(faults.system.source, Place(TOPIC, partition))
    faults.system.source.compact(TOPIC, partition)
    removed = frozenset(before) - frozenset(logs.data(faults.system.source, Place(TOPIC, partition)))
    faults.judge.allow_missing(partition, removed)
    return f"partition {partition}: {sorted(removed)}"


def _add_partition(faults: Faults, _: random.Random, __: Child | None) -> str:
    count = logs.partitions(faults.system.source, TOPIC) + 1
    faults.system.source.add_partitions(TOPIC, count)
    return str(count)


def _delete_unread_source(faults: Faults, chance: random.Random, _: Child | None) -> str:
    partition = _partition(faults, chance)
    end = faults.system.source.log(TOPIC, partition).end
    offset = chance.randint(0, end)
    faults.judge.allow_missing(partition, range(offset))
    if offset > faults.judge.copied_to(partition) + 1:  # nobody can know whether what was never read could be seen
        faults.allowed.add(SourceTruncated.exit_code)
    faults.system.source.delete_records(TOPIC, partition, offset)
    return f"partition {partition} begins at {offset} of {end}, copied to {faults.judge.copied_to(partition)}"


def _lose_source(faults: Faults, chance: random.Random, _: Child | None) -> str:
    place = Place(TOPIC, _partition(faults, chance))
    log = faults.system.source.log(*place)
    before = log.end
    if not before:
        return ""
    copied, read_to = faults.judge.copied_to(place.partition), max(faults.system.read_to.get(place, 0), faults.judge.begin_of(place.partition))
    _lose(faults.system.source, place, chance)
    if log.end < read_to:  # some of it is copied, or can be on its way
        faults.judge.is_source_history_lost = True
        (faults.demanded if log.end <= copied else faults.allowed).add(SourceTruncated.exit_code)
    else:
        faults.judge.look_again(place.partition)
    return f"{place}: {before - log.end} of {before}, read to {read_to}, copied to {copied}"


def _recreate_source(faults: Faults, chance: random.Random, _: Child | None) -> str:
    count = logs.partitions(faults.system.source, TOPIC)
    if not _has_frontiers(faults):
        return ""
    faults.judge.is_source_history_lost = True
    faults.demanded = {SourceRecreated.exit_code, TopicMissing.exit_code}
    faults.system.source.delete_topic(TOPIC)
    faults.later(chance.choice((0.0, 0.1, 5.0)), lambda: faults.system.source.create_topic(TOPIC, count))
    return f"{count} partitions"


def _has_frontiers(faults: Faults) -> bool:
    """Whether it is written down which source is copied."""
    return any(group.offsets for group in faults.system.destination.groups.values())


def _delete_between(faults: Faults, chance: random.Random, _: Child | None) -> str:
    place = _written(faults, PROXY, chance)
    if place is None:
        return ""
    offset = chance.randint(0, faults.system.destination.log(*place).end)
    faults.system.destination.delete_records(*place, offset)
    return f"{place} begins at {offset}"


def _lose_between(faults: Faults, chance: random.Random, _: Child | None) -> str:
    place = _written(faults, PROXY, chance)
    if place is None or not faults.system.destination.log(*place).end:
        return ""
    return f"{place}: {len(_lose(faults.system.destination, place, chance))}"


def _compact_between(faults: Faults, chance: random.Random, _: Child | None) -> str:
    place = _written(faults, PROXY, chance)
    if place is None:
        return ""
    faults.allowed.add(TopicsUnfit.exit_code)
    faults.system.destination.alter_config(PROXY, cleanup_policy="compact")
    return f"{place}: {faults.system.destination.compact(*place)} records are gone"


FEW_OFFSETS = 4
"""A transaction's late marker can take the offset of its lost record in the new topic. Then only the topic's id tells, up to a second later."""


def _recreate_destination(faults: Faults, _: random.Random, __: Child | None) -> str:
    if not logs.has(faults.system.destination, Place(COPY, 0)):
        return ""
    count = logs.partitions(faults.system.destination, COPY)
    if any(0 < log.end < FEW_OFFSETS for log in faults.system.destination.topics[COPY].logs):
        return ""
    faults.system.destination.delete_topic(COPY)
    faults.system.destination.create_topic(COPY, count)
    faults.judge.begin_again()
    # seen while running it is an end, and so it is for who is given a partition where another worker went on; a start copies it from the beginning
    faults.allowed |= {DestinationTruncated.exit_code, FrontierLost.exit_code}
    if faults.system.candidates:  # a candidate is known by the copy's records
        faults.allowed.add(SourceRefused.exit_code)
    return f"{count} partitions"


def _lose_destination(faults: Faults, chance: random.Random, _: Child | None) -> str:
    place = _written(faults, COPY, chance)
    if place is None or not faults.system.destination.log(*place).end:
        return ""
    faults.judge.is_destination_history_lost = True
    stable = faults.system.destination.log(*place).last_stable_offset
    lost = _lose(faults.system.destination, place, chance)
    ends = {DestinationTruncated.exit_code, HangingTransaction.exit_code}  # a lost marker leaves its transaction open
    if faults.system.candidates:  # a candidate is known by the copy's records
        ends.add(SourceRefused.exit_code)
    faults.allowed |= ends
    is_alone = len(faults.system.plan.faults) == 1  # with another fault, others can come to these offsets before it is seen
    if is_alone and any(record.kind == DATA and record.offset < stable for record in lost):  # what an open transaction loses, its marker can hide
        faults.demanded = ends
    return f"{place}: {len(lost)}"


def _delete_frontiers(faults: Faults, _: random.Random, __: Child | None) -> str:
    if not _has_frontiers(faults) or faults.system.is_stopped:
        return ""
    faults.system.recovers_from.add(FrontierLost.exit_code)
    faults.system.stop_for(operator.delete_frontiers)
    faults.later(operator.BACK_WITHIN_S, lambda: None)
    return "the service is stopped for it"


KINDS: dict[str, Callable[[Faults, random.Random, Child | None], str]] = {
    "source away": _source_away,
    "destination away": _destination_away,
    "records committed at the source are deleted": _retention,
    "source compacted": _compact,
    "partition added": _add_partition,
    "unread intermediate records deleted": _delete_between,
    "newest intermediate records lost": _lose_between,
    "destination recreated": _recreate_destination,
    "unread source records deleted": _delete_unread_source,
    "newest source records lost": _lose_source,
    "source recreated": _recreate_source,
    "newest destination records lost": _lose_destination,
    "intermediate topic compacted": _compact_between,
    "candidate not fed": _hold_candidate,
    "leaders of a candidate changed": _change_leaders,
    "candidate recreated": _recreate_candidate,
    FRONTIERS_DELETED: _delete_frontiers,
}
