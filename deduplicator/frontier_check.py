"""At each assignment, compares the frontier with the destination: does it have exactly the records
that the frontier says were written?

A transaction is atomic by contract, but a torn one was seen (a broker was killed between writing
the two kinds of markers: output committed, offsets not). So the frontier says where the output
ended, and every assignment reads the destination from there. It finds

- the record at `known_offset`, exactly `sent` visible records after it, and the last of all these
  is the record that was written: the frontier is right;
- more records: they are either the output of a torn transaction, and then they are the very next
  records that the rule accepts, or somebody else wrote them. The loop finds out: it compares each
  accepted record with the next surplus one (`Surplus.skip_matching`);
- fewer records, or a different last one: the destination lost records, unless retention or
  compaction deleted them. Offsets alone do not show this: where records were lost together with the
  marker of their transaction, the next marker, at the offset of a lost record, aborts the records
  of that transaction before it. And a coordinator that completes a transaction, but loses its
  markers, leaves its records to the next transaction of their producer: that one aborts them, while
  records of the other producer, which were committed after them, are there.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer

from common.errors import DestinationTruncated, ForeignWriter, TopicsUnfit
from common.frontier import KEPT, Frontier
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S
from common.kafka.visible_records import read_visible
from common.records import Consumed, compute_message_checksum
from common.routes import TopicPartition
from deduplicator.destination import Output
from deduplicator.unwrap import Record, compute_record_checksum

log = logging.getLogger(__name__)
SURPLUS_MAX = 200_000
"""More than two transactions can hold (`deduplicator.transaction_records`). Two can be torn: EndTxn
is answered before the markers are written, so the second can be committed meanwhile.
"""


@dataclass(slots=True)
class Surplus:
    """Visible records of one destination partition that the frontier does not count, and the offset
    of the last known one.
    """

    tp: TopicPartition
    known_offset: int
    records: deque[tuple[int, str]] = field(default_factory=deque)
    """Offset and checksum: the records themselves may be gigabytes."""

    def check_matching(self, records: Iterable[Record]) -> None:
        """ForeignWriter when one of the next accepted records is not what the destination has."""
        for (offset, checksum), record in zip(self.records, records, strict=False):
            if checksum != compute_record_checksum(record):
                raise ForeignWriter(
                    f"the record on {self.tp} at offset {offset} was not written by this copy:"
                    " somebody else writes to the destination topic. Stop the other writer, then"
                    " copy to a new topic"
                )

    def skip_matching(self, records: Sequence[Record]) -> int:
        """The number of next accepted records that are at the destination already; ForeignWriter
        when one of them differs.
        """
        self.check_matching(records)
        covered = min(len(records), len(self.records))
        for _ in range(covered):
            self.known_offset, _ = self.records.popleft()
        if covered:
            log.warning(
                "%s: %d records of a torn transaction are at the destination already; the frontier"
                " moves over them",
                self.tp,
                covered,
            )
        return covered


def check_destination(
    reader: Consumer,
    frontiers: Mapping[TopicPartition, Frontier],
    beginnings: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    compacted_topics: AbstractSet[str],
    undecided: AbstractSet[TopicPartition] = frozenset(),
    beat: Callable[[], None] = lambda: None,
) -> tuple[dict[TopicPartition, Output], dict[TopicPartition, Surplus]]:
    """Read each destination partition after its known record; returns the state of the output, and
    the records beyond the frontier.

    Retention deletes the oldest records, up to `beginnings`; compaction can delete any record of
    `compacted_topics`, so fewer records than were sent prove nothing there. But it keeps the last
    one, which is the newest of its key, unless that is a tombstone. And on an `undecided`
    partition, which has an open transaction, records that are missing may only be invisible yet: it
    is checked as strictly as any other, and the caller asks again. `beat` is called for each
    record; ClusterUnreachable when none comes for a while, TopicsUnfit for one whose timestamp was
    replaced.
    """
    _check_ends(frontiers, ends)
    may_lack_records = {
        tp
        for tp, frontier in frontiers.items()
        if tp.topic in compacted_topics or beginnings[tp] > frontier.destination_known + 1
    } - undecided
    at_known = _list_checked_at_known(frontiers, beginnings, may_lack_records)
    kept = _list_kept(frontiers, beginnings, may_lack_records)
    read_at_known = at_known | {tp for tp in kept if frontiers[tp].sent == 0}
    start_offsets = {
        tp: max(frontier.destination_known + (tp not in read_at_known), beginnings[tp])
        for tp, frontier in frontiers.items()
    }
    counted = dict.fromkeys(frontiers, 0)
    outputs = {tp: _get_known_state(row, tp in at_known) for tp, row in frontiers.items()}
    surplus: dict[TopicPartition, Surplus] = {}
    # beyond an open transaction no consumer gets a record, nor the end of the partition
    decided_ends = {tp: end for tp, end in ends.items() if tp not in undecided}
    for message in read_visible(reader, start_offsets, REQUEST_TIMEOUT_S, decided_ends):
        beat()
        tp, offset = TopicPartition(message.topic(), message.partition()), message.offset()
        _check_timestamp(tp, message)
        if tp in at_known:
            at_known.remove(tp)
            _check_known(tp, message, frontiers[tp])
            continue
        if tp in kept and _is_last_written(message, frontiers[tp]):
            kept.remove(tp)
        if offset <= frontiers[tp].destination_known:
            continue
        if counted[tp] < frontiers[tp].sent:
            counted[tp] += 1
            outputs[tp] = Output(offset, 0, is_known_written=True)
            if counted[tp] == frontiers[tp].sent and tp not in may_lack_records:
                _check_checksum(tp, message, frontiers[tp])
        else:
            _add(surplus.setdefault(tp, Surplus(tp, outputs[tp].known_offset)), message)
    _check_seen(frontiers, at_known, kept)
    _check_counts(frontiers, counted, may_lack_records)
    return outputs, surplus


def _check_ends(
    frontiers: Mapping[TopicPartition, Frontier], ends: Mapping[TopicPartition, int]
) -> None:
    for tp, frontier in frontiers.items():
        if frontier.last_written_min >= ends[tp]:
            raise _build_truncated_error(
                tp,
                f"record {frontier.destination_known} and {frontier.sent} after it were written,"
                f" the partition ends at {ends[tp]}",
            )


def _list_checked_at_known(
    frontiers: Mapping[TopicPartition, Frontier],
    beginnings: Mapping[TopicPartition, int],
    may_lack_records: AbstractSet[TopicPartition],
) -> set[TopicPartition]:
    """The partitions whose known record has to be there. It is compared, too, where nothing was
    sent after it.
    """
    return {
        tp
        for tp, frontier in frontiers.items()
        if _has_known_record(frontier)
        and tp not in may_lack_records
        and beginnings[tp] <= frontier.destination_known
    }


def _has_known_record(frontier: Frontier) -> bool:
    """Also without a flag, which older versions did not write, where a record was written and none
    after it.
    """
    return frontier.is_known_written or (frontier.last_written is not None and frontier.sent == 0)


def _get_known_state(frontier: Frontier, is_checked: bool) -> Output:
    return Output(frontier.destination_known, 0, is_checked or frontier.is_known_written)


def _list_kept(
    frontiers: Mapping[TopicPartition, Frontier],
    beginnings: Mapping[TopicPartition, int],
    may_lack_records: AbstractSet[TopicPartition],
) -> set[TopicPartition]:
    """The partitions that may lack records, but not the last one that was written: retention has
    not deleted it, and compaction keeps it.
    """
    return {
        tp
        for tp in may_lack_records
        if (frontiers[tp].last_written or "").endswith(KEPT)
        and beginnings[tp] <= frontiers[tp].destination_known + (frontiers[tp].sent > 0)
    }


def _check_seen(
    frontiers: Mapping[TopicPartition, Frontier],
    at_known: AbstractSet[TopicPartition],
    kept: AbstractSet[TopicPartition],
) -> None:
    """DestinationTruncated for a partition whose last record had to be there and was not seen."""
    for tp in at_known:
        raise _build_missing_record_error(tp, frontiers[tp])
    for tp in kept:
        raise _build_truncated_error(
            tp, "the last one is gone, which compaction keeps: it has a key and a value"
        )


def _add(surplus: Surplus, message: Consumed) -> None:
    surplus.records.append((message.offset(), compute_message_checksum(message)))
    if len(surplus.records) > SURPLUS_MAX:
        raise ForeignWriter(
            f"{surplus.tp} has more than {SURPLUS_MAX} records from offset"
            f" {surplus.records[0][0]} on that this copy did not write. If somebody else writes to"
            " the destination topic, stop the other writer, then copy to a new topic. If the"
            " group's offsets were set back, stop the service and run `reo recover`"
        )


def _check_timestamp(tp: TopicPartition, message: Consumed) -> None:
    if message.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME:
        raise TopicsUnfit(
            f"the record on {tp} at offset {message.offset()} has the time at which a broker"
            " appended it: message.timestamp.type was LogAppendTime when it was written. `reo"
            " verify` names the first record with another timestamp than at the source. Copy to a"
            " new topic"
        )


def _check_known(tp: TopicPartition, message: Consumed, frontier: Frontier) -> None:
    if message.offset() != frontier.destination_known:
        raise _build_missing_record_error(tp, frontier)
    if frontier.sent == 0:
        _check_checksum(tp, message, frontier)


def _check_checksum(tp: TopicPartition, message: Consumed, frontier: Frontier) -> None:
    if frontier.last_written is not None and not _is_last_written(message, frontier):
        raise _build_truncated_error(
            tp, f"the last one, at offset {message.offset()}, is a different record now"
        )


def _is_last_written(message: Consumed, frontier: Frontier) -> bool:
    return frontier.last_written_checksum == compute_message_checksum(message)


def _check_counts(
    frontiers: Mapping[TopicPartition, Frontier],
    counted: Mapping[TopicPartition, int],
    may_lack_records: AbstractSet[TopicPartition],
) -> None:
    for tp, frontier in frontiers.items():
        if counted[tp] == frontier.sent:
            continue
        if tp not in may_lack_records:
            raise _build_truncated_error(
                tp,
                f"{frontier.sent} records were written after offset {frontier.destination_known},"
                f" {counted[tp]} are left",
            )
        log.warning(
            "%s: retention or compaction deleted %d of the last %d records; the frontier cannot be"
            " checked",
            tp,
            frontier.sent - counted[tp],
            frontier.sent,
        )


def _build_missing_record_error(tp: TopicPartition, frontier: Frontier) -> DestinationTruncated:
    return _build_truncated_error(
        tp, f"a record at offset {frontier.destination_known}, where no record is now"
    )


def _build_truncated_error(tp: TopicPartition, evidence: str) -> DestinationTruncated:
    return DestinationTruncated(
        f"{tp} lacks records that were committed ({evidence}): the destination cluster lost data"
        " or records were deleted. Copy to a new topic, or restore this one; if the topic was"
        " compacted before, set its cleanup.policy back to compact"
    )
