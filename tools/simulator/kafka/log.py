"""One partition's log: records and markers in order of their offsets, and what follows from them
for readers and producers.

Only the broker's rules are here: which offset a record gets, which producer may append, up to which
offset a read_committed consumer can read. The producer state follows from the records, and is
rebuilt from them when records are lost (`rebuild_producers`), as a broker does it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from operator import itemgetter
from typing import ClassVar

from confluent_kafka import KafkaError

from tools.simulator.kafka.errors import BrokerError
from tools.simulator.kafka.log_records import (
    ABORT,
    CREATE_TIME,
    DATA,
    LOG_APPEND_TIME,
    PLAIN,
    NewRecord,
    ProducerState,
    Record,
    Writer,
)
from tools.simulator.schedule import Signal

_offset = itemgetter(0)


class Log:
    """The log of a partition."""

    __slots__ = (
        "aborted",
        "begin",
        "changed_at",
        "end",
        "epochs",
        "fetch_end",
        "leader_epoch",
        "open_transactions",
        "producers",
        "records",
        "watchers",
    )

    change_count: ClassVar[int] = 0
    """How often any log, or the offsets of a group, have changed: the judges compare only when
    something has changed.
    """

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.begin = 0
        self.end = 0
        """The high watermark: the next offset."""
        self.fetch_end: int | None = None
        """The lower high watermark of the broker that answers fetches, if it has fewer records."""
        self.leader_epoch = 0
        self.epochs: list[tuple[int, int]] = [(0, 0)]
        """Each leader epoch and its start offset."""
        self.producers: dict[int, ProducerState] = {}
        self.open_transactions: dict[int, int] = {}
        """For each producer id, the first offset of its open transaction."""
        self.aborted: set[int] = set()
        """The offsets of records of aborted transactions."""
        self.changed_at = 0
        """What `change_count` was when this log changed last: no other log has this number."""
        self.watchers: dict[Signal, None] = {}
        """The signals of consumers that wait for records. A dict, because the order of a set
        differs from run to run.
        """

    @property
    def last_stable_offset(self) -> int:
        """The last stable offset."""
        return min(self.open_transactions.values()) if self.open_transactions else self.end

    @property
    def fetched_end(self) -> int:
        """The high watermark of the broker that answers fetches."""
        return self.end if self.fetch_end is None else min(self.end, self.fetch_end)

    def index(self, offset: int) -> int:
        """The index in `records` of the first record at or after this offset."""
        records = self.records
        if not records or offset <= records[0].offset:
            return 0
        guess = offset - records[0].offset
        if guess < len(records) and records[guess].offset == offset:
            return guess
        return bisect_left(records, offset, key=_offset)

    def read(self, offset: int, count: int, committed: bool) -> tuple[list[Record], int, int]:
        """Up to `count` visible records from this offset on, the next offset to read, and the
        offset after the last marker, or -1.

        BrokerError when the offset is out of range.
        """
        if not self.begin <= offset <= self.end:
            raise BrokerError(KafkaError.OFFSET_OUT_OF_RANGE)
        end = self.last_stable_offset if committed else self.end
        visible_records: list[Record] = []
        marker = -1
        records, aborted = self.records, self.aborted
        index_of_record = self.index(offset)
        while index_of_record < len(records) and records[index_of_record].offset < end:
            record = records[index_of_record]
            if len(visible_records) == count:
                return visible_records, record.offset, marker
            if record.kind != DATA:
                marker = record.offset + 1
            elif not (committed and record.offset in aborted):
                visible_records.append(record)
            index_of_record += 1
        return visible_records, max(offset, end), marker

    def append(
        self, new: Iterable[NewRecord], timestamp_ms: int | None, writer: Writer = PLAIN
    ) -> int:
        """Append a batch and return its first offset. `timestamp_ms` is the LogAppendTime, if any.
        BrokerError for a producer that may not append.
        """
        pid, epoch, sequence, is_transactional = writer
        if pid >= 0:
            duplicate = self._find_duplicate(writer)
            if duplicate is not None:
                return duplicate
        first = offset = self.end
        kind = CREATE_TIME if timestamp_ms is None else LOG_APPEND_TIME
        for key, value, headers, created_ms in new:
            self.records.append(
                Record(
                    offset,
                    key,
                    value,
                    headers,
                    created_ms if timestamp_ms is None else timestamp_ms,
                    kind,
                    self.leader_epoch,
                    pid,
                    epoch,
                    sequence,
                    is_transactional,
                )
            )
            offset += 1
            sequence += pid >= 0
        self._set_end(offset)
        if pid >= 0:
            self.producers[pid] = ProducerState(epoch, sequence - 1)
            if is_transactional:
                self.open_transactions.setdefault(pid, first)
        return first

    def _find_duplicate(self, writer: Writer) -> int | None:
        """The offset of a batch that is already in the log, or None. BrokerError for an older
        epoch, or for a gap in the sequence.
        """
        pid, epoch, sequence, _ = writer
        known = self.producers.get(pid)
        if known is None:
            return None
        if epoch < known.epoch:
            raise BrokerError(KafkaError.INVALID_PRODUCER_EPOCH)
        if epoch > known.epoch or known.sequence < 0:
            if sequence != 0:
                raise BrokerError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER)
            return None
        if sequence == known.sequence + 1:
            return None
        if sequence <= known.sequence:
            for record in reversed(self.records):
                if record[7:10] == (pid, epoch, sequence) and record.kind == DATA:
                    return record.offset
            raise BrokerError(KafkaError.DUPLICATE_SEQUENCE_NUMBER)
        raise BrokerError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER)

    def append_marker(self, producer_id: int, epoch: int, kind: int, timestamp_ms: int) -> None:
        """Append the marker that ends a transaction."""
        self.records.append(
            Record(
                self.end,
                None,
                None,
                None,
                timestamp_ms,
                CREATE_TIME,
                self.leader_epoch,
                producer_id,
                epoch,
                -1,
                True,
                kind,
            )
        )
        known = self.producers.get(producer_id)
        self._end_transaction(self.records[-1], known)
        self._set_end(self.end + 1)

    def _end_transaction(self, marker: Record, known: ProducerState | None) -> None:
        pid, epoch = marker.producer_id, marker.producer_epoch
        begin = self.open_transactions.pop(pid, None)
        if begin is not None and marker.kind == ABORT:
            self.aborted.update(
                record.offset
                for record in self.records[self.index(begin) : self.index(marker.offset)]
                if record.producer_id == pid and record.is_transactional
            )
        if known is None or known.epoch < epoch:
            self.producers[pid] = ProducerState(epoch, -1)

    def _set_end(self, end: int) -> None:
        self.end = end
        self.notify_watchers()

    def notify_watchers(self) -> None:
        """Wake all consumers that wait for records."""
        Log.change_count += 1
        self.changed_at = Log.change_count
        for watcher in list(self.watchers):
            watcher.notify()

    def delete(self, before: int) -> int:
        """Delete the records below this offset, or all with -1, and return the new log start
        offset. BrokerError when the offset is out of range.
        """
        before = self.end if before < 0 else before
        if before > self.end:
            raise BrokerError(KafkaError.OFFSET_OUT_OF_RANGE)
        if before > self.begin:
            self.begin = before
            del self.records[: self.index(before)]
        return self.begin

    def remove(self, offsets: Iterable[int]) -> None:
        """Remove the records at these offsets. All others keep their offsets."""
        removed_offsets = set(offsets)
        self.records = [record for record in self.records if record.offset not in removed_offsets]

    def compact(self) -> int:
        """Keep only the newest stable record of each key, and remove aborted records. Returns how
        many records were removed.
        """
        stable_records = [
            record
            for record in self.records[: self.index(self.last_stable_offset)]
            if record.kind == DATA
        ]
        newest = {
            record.key: record.offset
            for record in stable_records
            if record.offset not in self.aborted
        }
        removed_offsets = [
            record.offset
            for record in stable_records
            if record.offset in self.aborted or newest.get(record.key) != record.offset
        ]
        self.remove(removed_offsets)
        return len(removed_offsets)

    def truncate(self, count: int, is_same_epoch: bool = False) -> list[Record]:
        """Lose the newest offsets, so that they are used again, under a new leader epoch unless
        `is_same_epoch`: as in an unclean leader election, or when a disk is restored. Returns the
        lost records.
        """
        lost_records = self.records[self.index(max(self.begin, self.end - count)) :]
        self.end = max(self.begin, self.end - count)
        self.fetch_end = None
        del self.records[self.index(self.end) :]
        self.epochs = [(epoch, begin) for epoch, begin in self.epochs if begin < self.end]
        self.leader_epoch += not is_same_epoch
        if not self.epochs or self.epochs[-1][0] < self.leader_epoch:
            self.epochs.append((self.leader_epoch, self.end))
        self.rebuild_producers()
        self.notify_watchers()
        return lost_records

    def change_leader(self) -> None:
        """Begin a new leader epoch at the log end offset, without loss. A connected client must
        refresh the epochs that it knows.
        """
        self.leader_epoch += 1
        self.epochs.append((self.leader_epoch, self.end))

    def rebuild_producers(self) -> None:
        """Rebuild the producer state from the remaining records."""
        self.producers, self.open_transactions, self.aborted = {}, {}, set()
        for record in self.records:
            pid = record.producer_id
            if record.kind != DATA:
                self._end_transaction(record, self.producers.get(pid))
            elif pid >= 0:
                self.producers[pid] = ProducerState(record.producer_epoch, record.sequence)
                if record.is_transactional:
                    self.open_transactions.setdefault(pid, record.offset)

    def end_of_epoch(self, epoch: int) -> int:
        """The first offset after the records of this leader epoch and those before it
        (OffsetForLeaderEpoch).
        """
        return next((begin for later, begin in self.epochs if later > epoch), self.end)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch at this offset."""
        return max((epoch for epoch, begin in self.epochs if begin <= offset), default=-1)
