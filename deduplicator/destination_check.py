"""Compares the frontier with the destination: does it have exactly the records that the frontier
says were written?

A transaction is atomic by contract, but a torn one was seen (a broker was killed between writing
the two kinds of markers: output committed, offsets not). So the frontier says where the output
ended, and every assignment reads the destination from there. It finds

- exactly `sent` visible records after `known_offset`, and the last of them (or, if `sent` is 0, the
  one at `known_offset`) is the record that was written: the frontier is right;
- more records: they are either the output of a torn transaction, and then they are the very next
  records that the rule accepts, or somebody else wrote them. The loop finds out: it compares each
  accepted record with the next surplus one (`Surplus.skip_matching`);
- fewer records, or a different last one: the destination lost records, unless retention or
  compaction deleted them. Offsets alone do not show this: where records were lost together with the
  marker of their transaction, the next marker, at the offset of a lost record, aborts the records
  of that transaction before it.
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
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S
from common.kafka.visible_records import read_visible
from common.metrics import TORN
from common.records import Consumed, headers_of, message_checksum
from common.routes import Place
from deduplicator.destination import Output
from deduplicator.unwrap import Record

log = logging.getLogger(__name__)
SURPLUS_MAX = 100_000
"""More than one transaction can hold (`deduplicator.transaction_records`): only one can be torn,
the next waits for it.
"""


@dataclass(slots=True)
class Surplus:
    """Visible records of one destination partition that the frontier does not count, and the offset
    of the last known one.
    """

    place: Place
    known_offset: int
    records: deque[tuple[int, Record]] = field(default_factory=deque)

    def skip_matching(self, records: Sequence[Record]) -> int:
        """The number of next accepted records that are at the destination already; ForeignWriter
        when one of them differs.
        """
        covered = 0
        for record in records:
            if not self.records:
                break
            offset, surplus_record = self.records[0]
            if surplus_record != record:
                raise ForeignWriter(
                    f"the record on {self.place} at offset {offset} was not written by this copy:"
                    " somebody else writes to the destination topic. Stop the other writer, then"
                    " copy to a new topic"
                )
            self.records.popleft()
            self.known_offset = offset
            covered += 1
        if covered:
            TORN.labels(self.place.topic, str(self.place.partition)).inc(covered)
            log.warning(
                "%s: %d records of a torn transaction are at the destination already; the frontier"
                " moves over them",
                self.place,
                covered,
            )
        return covered


def check_destination(
    reader: Consumer,
    frontiers: Mapping[Place, Frontier],
    beginnings: Mapping[Place, int],
    ends: Mapping[Place, int],
    compacted_topics: AbstractSet[str],
    beat: Callable[[], None] = lambda: None,
) -> tuple[dict[Place, Output], dict[Place, Surplus]]:
    """Read each destination partition after its known record; returns the state of the output, and
    the records beyond the frontier.

    Retention deletes the oldest records, up to `beginnings`; compaction can delete any record of
    `compacted_topics`, so fewer records than were sent prove nothing there. `beat` is called for
    each record; ClusterUnreachable when none comes for a while.
    """
    _check_ends(frontiers, ends)
    may_lack_records = {
        place
        for place, frontier in frontiers.items()
        if place.topic in compacted_topics or beginnings[place] > frontier.destination_known + 1
    }
    at_known = _list_checked_at_known(frontiers, beginnings, may_lack_records)
    start_offsets = {
        place: max(frontier.destination_known + (place not in at_known), beginnings[place])
        for place, frontier in frontiers.items()
    }
    counted = dict.fromkeys(frontiers, 0)
    outputs = {
        place: Output(frontier.destination_known, 0) for place, frontier in frontiers.items()
    }
    surplus: dict[Place, Surplus] = {}
    for message in read_visible(reader, start_offsets, REQUEST_TIMEOUT_S):
        beat()
        place, offset = Place(message.topic(), message.partition()), message.offset()
        if place in at_known:
            at_known.remove(place)
            if offset != frontiers[place].destination_known:
                raise _known_record_missing(place, frontiers[place])
            _check_checksum(place, message, frontiers[place])
            continue
        if counted[place] < frontiers[place].sent:
            counted[place] += 1
            outputs[place].known_offset = offset
            if counted[place] == frontiers[place].sent and place not in may_lack_records:
                _check_checksum(place, message, frontiers[place])
        else:
            _add(surplus.setdefault(place, Surplus(place, outputs[place].known_offset)), message)
    for place in at_known:
        raise _known_record_missing(place, frontiers[place])
    _check_counts(frontiers, counted, may_lack_records)
    return outputs, surplus


def _check_ends(frontiers: Mapping[Place, Frontier], ends: Mapping[Place, int]) -> None:
    for place, frontier in frontiers.items():
        if frontier.destination_known >= ends[place]:
            raise _destination_truncated(
                place,
                f"record {frontier.destination_known} was written, the partition ends at"
                f" {ends[place]}",
            )


def _list_checked_at_known(
    frontiers: Mapping[Place, Frontier],
    beginnings: Mapping[Place, int],
    may_lack_records: AbstractSet[Place],
) -> set[Place]:
    """The partitions of which nothing was sent after the known record: this record itself is
    compared.
    """
    return {
        place
        for place, frontier in frontiers.items()
        if frontier.last_written is not None
        and frontier.sent == 0
        and place not in may_lack_records
        and beginnings[place] <= frontier.destination_known
    }


def _add(surplus: Surplus, message: Consumed) -> None:
    surplus.records.append(
        (
            message.offset(),
            (message.key(), message.value(), headers_of(message) or None, message.timestamp()[1]),
        )
    )
    if len(surplus.records) > SURPLUS_MAX:
        raise ForeignWriter(
            f"{surplus.place} has more than {SURPLUS_MAX} records from offset"
            f" {surplus.records[0][0]} on that this copy did not write. If somebody else writes to"
            " the destination topic, stop the other writer, then copy to a new topic. If the"
            " group's offsets were set back, stop the service and run `reo recover`"
        )


def _check_checksum(place: Place, message: Consumed, frontier: Frontier) -> None:
    if frontier.last_written not in (None, message_checksum(message)):
        raise _destination_truncated(
            place, f"the last one, at offset {message.offset()}, is a different record now"
        )


def _check_counts(
    frontiers: Mapping[Place, Frontier],
    counted: Mapping[Place, int],
    may_lack_records: AbstractSet[Place],
) -> None:
    for place, frontier in frontiers.items():
        if counted[place] == frontier.sent:
            continue
        if place not in may_lack_records:
            raise _destination_truncated(
                place,
                f"{frontier.sent} records were written after offset {frontier.destination_known},"
                f" {counted[place]} are left",
            )
        log.warning(
            "%s: retention or compaction deleted %d of the last %d records; the frontier cannot be"
            " checked",
            place,
            frontier.sent - counted[place],
            frontier.sent,
        )


def _known_record_missing(place: Place, frontier: Frontier) -> DestinationTruncated:
    return _destination_truncated(
        place, f"a record at offset {frontier.destination_known}, where no record is now"
    )


def _destination_truncated(place: Place, evidence: str) -> DestinationTruncated:
    return DestinationTruncated(
        f"{place} lacks records that were committed ({evidence}): the destination cluster lost data"
        " or records were deleted. Copy to a new topic, or restore this one"
    )
