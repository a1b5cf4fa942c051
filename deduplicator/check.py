"""The frontier held against the data: does the destination have exactly what the frontier says was written?

A transaction is atomic by contract, and was seen torn (a broker killed between the two kinds of markers: output committed,
offsets not). So the frontier says where the output stood, and every assignment reads the destination from there:

- exactly `sent` visible records after `known`, of which the last (or, with none, the one at `known`) is the one that was written: the frontier is true;
- more: they are either the output of a torn transaction, then they are the very next records that the rule accepts, or a
  foreign writer's. The loop finds out: it holds each accepted record against the next surplus one (`Surplus.covers`);
- fewer, or another one: the destination lost records, unless retention or compaction took them. Offsets alone do not tell: where records were
  lost together with the marker of their transaction, its records before them are aborted by the next marker, which has the offset of a lost one.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from confluent_kafka import Consumer

from common.errors import DestinationTruncated, ForeignWriter
from common.frontier import Frontier
from common.kafka_clients import REQUEST_TIMEOUT_S
from common.metrics import TORN
from common.positions import read_visible
from common.records import Consumed, headers_of, message_checksum
from common.routes import Place
from deduplicator.destination import Output
from deduplicator.unwrap import Record

log = logging.getLogger(__name__)
SURPLUS_MAX = 100_000
"""More than one transaction can hold (`deduplicator.transaction_records`): only one can be torn, the next waits for it."""


@dataclass(slots=True)
class Surplus:
    """Visible records of one destination partition that the frontier does not know of, and where the last known one is."""

    place: Place
    known: int
    records: deque[tuple[int, Record]] = field(default_factory=deque)

    def covers(self, records: Sequence[Record]) -> int:
        """How many of the next accepted records are there already; ForeignWriter when one differs from what is there."""
        covered = 0
        for record in records:
            if not self.records:
                break
            offset, there = self.records[0]
            if there != record:
                raise ForeignWriter(
                    f"the record on {self.place} at offset {offset} was not written by this copy: somebody else writes to the destination "
                    "topic. Stop the other writer, then copy to a new topic")
            self.records.popleft()
            self.known = offset
            covered += 1
        if covered:
            TORN.labels(self.place.topic, str(self.place.partition)).inc(covered)
            log.warning("%s: %d records of a torn transaction are at the destination already; the frontier moves over them", self.place, covered)
        return covered


def held_against_data(reader: Consumer, frontiers: Mapping[Place, Frontier], beginnings: Mapping[Place, int], ends: Mapping[Place, int],
                      compacted: AbstractSet[str], alive: Callable[[], None] = lambda: None) -> tuple[dict[Place, Output], dict[Place, Surplus]]:
    """Read each destination partition after its known record; where the output stands, and what is there beyond the frontier.

    Retention takes the oldest records, so what it took begins before `beginnings`; compaction (of the topics named) takes any, so there
    fewer records than were sent prove nothing. `alive` is called for each record; ClusterUnreachable when none comes for a while.
    """
    for place, frontier in frontiers.items():
        if frontier.destination_known >= ends[place]:
            raise _truncated(place, f"record {frontier.destination_known} was written, the partition ends at {ends[place]}")
    vanishing = {place for place, frontier in frontiers.items() if place.topic in compacted or beginnings[place] > frontier.destination_known + 1}
    at_known = {place for place, frontier in frontiers.items() if frontier.last_written is not None and frontier.sent == 0
                and place not in vanishing and beginnings[place] <= frontier.destination_known}
    begins = {place: max(frontier.destination_known + (place not in at_known), beginnings[place]) for place, frontier in frontiers.items()}
    counted = dict.fromkeys(frontiers, 0)
    outputs = {place: Output(frontier.destination_known, 0) for place, frontier in frontiers.items()}
    surplus: dict[Place, Surplus] = {}
    for message in read_visible(reader, begins, REQUEST_TIMEOUT_S):
        alive()
        place, offset = Place(message.topic(), message.partition()), message.offset()
        if place in at_known:
            at_known.remove(place)
            if offset != frontiers[place].destination_known:
                raise _truncated(place, f"a record at offset {frontiers[place].destination_known}, which is none now")
            _check_same(place, message, frontiers[place])
            continue
        if counted[place] < frontiers[place].sent:
            counted[place] += 1
            outputs[place].known = offset
            if counted[place] == frontiers[place].sent and place not in vanishing:
                _check_same(place, message, frontiers[place])
        else:
            _add(surplus.setdefault(place, Surplus(place, outputs[place].known)), message)
    for place in at_known:
        raise _truncated(place, f"a record at offset {frontiers[place].destination_known}, which is none now")
    _missing(frontiers, counted, vanishing)
    return outputs, surplus


def _add(found: Surplus, message: Consumed) -> None:
    found.records.append((message.offset(), (message.key(), message.value(), headers_of(message) or None, message.timestamp()[1])))
    if len(found.records) > SURPLUS_MAX:
        raise ForeignWriter(f"{found.place} has more than {SURPLUS_MAX} records from offset {found.records[0][0]} on that this copy did not "
                            "write. If somebody else writes to the destination topic, stop the other writer, then copy to a new topic. If the group's "
                            "offsets were set back, stop the service and run `reo recover`")


def _check_same(place: Place, message: Consumed, frontier: Frontier) -> None:
    if frontier.last_written not in (None, message_checksum(message)):
        raise _truncated(place, f"the last one, which is another one now, at offset {message.offset()}")


def _missing(frontiers: Mapping[Place, Frontier], counted: Mapping[Place, int], vanishing: AbstractSet[Place]) -> None:
    for place, frontier in frontiers.items():
        if counted[place] == frontier.sent:
            continue
        if place not in vanishing:
            raise _truncated(place, f"{frontier.sent} records were written after offset {frontier.destination_known}, {counted[place]} are there")
        log.warning("%s: %d of the last %d records are gone by retention or compaction; the frontier cannot be checked", place,
                    frontier.sent - counted[place], frontier.sent)


def _truncated(place: Place, seen: str) -> DestinationTruncated:
    return DestinationTruncated(f"{place} lacks records that were committed ({seen}): the destination cluster lost data or records were deleted. "
                                "Copy to a new topic, or restore this one")
