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

    def add(self, message: Consumed) -> None:
        """The next one; ForeignWriter when there are too many."""
        self.records.append((message.offset(), compute_message_checksum(message)))
        if len(self.records) > SURPLUS_MAX:
            raise ForeignWriter(
                f"{self.tp} has more than {SURPLUS_MAX} records from offset {self.records[0][0]} on"
                " that this copy did not write. If somebody else writes to the destination topic,"
                " stop the other writer, then copy to a new topic. If the group's offsets were set"
                " back, stop the service and run `reo recover`",
                topic=self.tp.topic,
            )

    def check_matching(self, records: Iterable[Record]) -> None:
        """ForeignWriter when one of the next accepted records is not what the destination has."""
        for (offset, checksum), record in zip(self.records, records, strict=False):
            if checksum != compute_record_checksum(record):
                raise ForeignWriter(
                    f"the record on {self.tp} at offset {offset} was not written by this copy:"
                    " somebody else writes to the destination topic. Stop the other writer, then"
                    " copy to a new topic",
                    topic=self.tp.topic,
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


class OutputCheck:
    """Compares the frontier of one destination partition with its visible records, which are added
    in order.
    """

    def __init__(
        self,
        tp: TopicPartition,
        frontier: Frontier,
        beginning: int,
        is_compacted: bool,
        is_undecided: bool,
    ) -> None:
        self.tp = tp
        self.frontier = frontier
        known = frontier.destination_known
        has_deletions = is_compacted or beginning > known + 1
        self.may_lack_records = has_deletions and not is_undecided
        # a frontier of an older version has no flag: its known record was written if it has a
        # checksum, and nothing was sent after it
        was_written = frontier.is_known_written or (
            frontier.last_written is not None and frontier.sent == 0
        )
        self.awaits_known = was_written and not self.may_lack_records and beginning <= known
        """Whether the record at the known offset has to be there, and was not seen yet."""
        is_kept = (frontier.last_written or "").endswith(KEPT)
        self.awaits_kept = (
            is_kept and self.may_lack_records and beginning <= known + (frontier.sent > 0)
        )
        """Whether the last record that was written has to be there, and was not seen yet: retention
        has not deleted it, and compaction keeps it.
        """
        reads_known = self.awaits_known or (self.awaits_kept and frontier.sent == 0)
        self.start_offset = max(known if reads_known else known + 1, beginning)
        self.counted = 0
        self.output = Output(known, 0, self.awaits_known or frontier.is_known_written)
        self.surplus = Surplus(tp, known)

    def add(self, message: Consumed) -> None:
        """The next visible record."""
        if message.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME:
            raise TopicsUnfit(
                f"the record on {self.tp} at offset {message.offset()} has the time at which a"
                " broker appended it: message.timestamp.type was LogAppendTime when it was written."
                " `reo verify` names the first record with another timestamp than at the source."
                " Copy to a new topic",
                topic=self.tp.topic,
            )
        if self.awaits_known:
            self.awaits_known = False
            self._check_known(message)
            return
        if self.awaits_kept and self._is_last_written(message):
            self.awaits_kept = False
        if message.offset() <= self.frontier.destination_known:
            return
        if self.counted < self.frontier.sent:
            self.counted += 1
            self.output = Output(message.offset(), 0, is_known_written=True)
            if self.counted == self.frontier.sent and not self.may_lack_records:
                self._check_checksum(message)
        else:
            self.surplus.known_offset = self.output.known_offset
            self.surplus.add(message)

    def _check_known(self, message: Consumed) -> None:
        if message.offset() != self.frontier.destination_known:
            raise self._build_missing_record_error()
        if self.frontier.sent == 0:
            self._check_checksum(message)

    def _check_checksum(self, message: Consumed) -> None:
        if self.frontier.last_written is not None and not self._is_last_written(message):
            raise _build_truncated_error(
                self.tp, f"the last one, at offset {message.offset()}, is a different record now"
            )

    def _is_last_written(self, message: Consumed) -> bool:
        return self.frontier.last_written_checksum == compute_message_checksum(message)

    def _build_missing_record_error(self) -> DestinationTruncated:
        known = self.frontier.destination_known
        return _build_truncated_error(
            self.tp, f"a record at offset {known}, where no record is now"
        )

    def finish(self) -> None:
        """There are no more records; DestinationTruncated when some are missing that had to be
        there.
        """
        known, sent = self.frontier.destination_known, self.frontier.sent
        if self.awaits_known:
            raise self._build_missing_record_error()
        if self.awaits_kept:
            raise _build_truncated_error(
                self.tp, "the last one is gone, which compaction keeps: it has a key and a value"
            )
        if self.counted == sent:
            return
        if not self.may_lack_records:
            raise _build_truncated_error(
                self.tp,
                f"{sent} records were written after offset {known}, {self.counted} are left",
            )
        log.warning(
            "%s: retention or compaction deleted %d of the last %d records; the frontier cannot be"
            " checked",
            self.tp,
            sent - self.counted,
            sent,
        )


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
    checks = {
        tp: OutputCheck(tp, frontier, beginnings[tp], tp.topic in compacted_topics, tp in undecided)
        for tp, frontier in frontiers.items()
    }
    start_offsets = {tp: check.start_offset for tp, check in checks.items()}
    # beyond an open transaction no consumer gets a record, nor the end of the partition
    decided_ends = {tp: end for tp, end in ends.items() if tp not in undecided}
    for message in read_visible(reader, start_offsets, REQUEST_TIMEOUT_S, decided_ends):
        beat()
        checks[TopicPartition(message.topic(), message.partition())].add(message)
    for check in checks.values():
        check.finish()
    return (
        {tp: check.output for tp, check in checks.items()},
        {tp: check.surplus for tp, check in checks.items() if check.surplus.records},
    )


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


def _build_truncated_error(tp: TopicPartition, evidence: str) -> DestinationTruncated:
    return DestinationTruncated(
        f"{tp} lacks records that were committed ({evidence}): the destination cluster lost data"
        " or records were deleted. Copy to a new topic, or restore this one; if the topic was"
        " compacted before, set its cleanup.policy back to compact",
        topic=tp.topic,
    )
