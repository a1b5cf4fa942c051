"""What must be true of the copy after every step and at the end. The judge reads the logs of the
clusters; it asks the service nothing.

For each partition, the records that a `read_committed` consumer of the destination sees are a
prefix of the source's visible records: in the same order, each once, with the same key, value,
headers and timestamp; no record of an aborted transaction, and no other record. Records that the
source has deleted or compacted meanwhile may be missing. Otherwise the service has ended, with an
error that the injected fault allows.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from common.routes import TopicPartition
from tools.simulator import log_reader
from tools.simulator.kafka.log import Log
from tools.simulator.partition_copy import ExpectedRecord, PartitionCopy, Violation

if TYPE_CHECKING:
    from tools.simulator.system import System


class Judge:
    """Compares both clusters whenever one of their logs has changed."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.copies: dict[TopicPartition, PartitionCopy] = {}
        self.paused: set[str] = set()
        """The source topics whose records may wait."""
        """By source partition."""
        self.change_count = -1
        self.is_source_history_lost = False
        """The source lost copied records: its later records cannot be compared, and the service
        must stop.
        """
        self.is_destination_history_lost = False
        self.violation = ""

    @property
    def compared(self) -> int:
        """How many records were compared."""
        return sum(copy.compared for copy in self.copies.values())

    @property
    def is_history_lost(self) -> bool:
        """Whether one side lost records, so that the copy cannot be compared any more."""
        return self.is_source_history_lost or self.is_destination_history_lost

    def has_violation(self) -> bool:
        """Called after each step."""
        if self.change_count != Log.change_count and not self.violation:
            self.change_count = Log.change_count
            try:
                self._check_partitions()
            except Violation as violation:
                self.violation = str(violation)
        return bool(self.violation)

    def _check_partitions(self) -> None:
        for route in self.system.routes:
            for partition in range(route.partitions.first):
                log = self.system.destination.find_log(route.destination_topic, partition)
                if log and log.end:
                    raise Violation(f"{route} has written to partition {partition}")
        for tp in self.system.list_source_partitions():
            copy = self._find_copy(tp)
            if not copy.is_first_offset_known:
                self._learn_first_offset(tp, copy)
            destination = self.system.find_destination(tp)
            log = self.system.destination.find_log(*destination)
            changed_at = self.system.source.log(*tp).changed_at, log.changed_at if log else 0
            if copy.changed_at != changed_at:
                copy.changed_at = changed_at
                self._read_source(tp, copy)
                if not self.is_history_lost:
                    self._compare_destination(destination, copy)

    def _find_copy(self, source: TopicPartition) -> PartitionCopy:
        return self.copies.setdefault(
            source, PartitionCopy(is_first_offset_known=self.system.plan.start == "earliest")
        )

    def _learn_first_offset(self, source: TopicPartition, copy: PartitionCopy) -> None:
        """The first frontier is the end of the partition when it was chosen. A new partition is
        copied from its beginning. After a fault in the first start so can be a topic that is
        still without a frontier when others have theirs: a worker that was started again, or
        stood still, cannot tell it from a new one.
        """
        frontier_offset = self.system.load_frontier_offset(source)
        if frontier_offset is None:
            return
        copy.first_offset, copy.is_first_offset_known = frontier_offset + 1, True
        end_at_start, log = (
            self.system.ends_at_start.get(source),
            self.system.source.log(*source),
        )
        # the first records of a new partition can be deleted before the copy begins
        lowest, highest = (end_at_start, log.end) if end_at_start is not None else (0, log.begin)
        may_begin_at_0 = bool(self.system.faults.injected_kinds) and any(
            self.system.load_frontier_offset(other) is not None
            for other in self.system.list_source_partitions()
            if other.topic != source.topic
        )
        if (
            not self.is_history_lost
            and not lowest <= copy.first_offset <= highest
            and not (may_begin_at_0 and copy.first_offset == 0)
        ):
            raise Violation(
                f"the copy of {source} begins at source offset {copy.first_offset}; expected an"
                f" offset from {lowest} to {highest}"
            )
        copy.expected = [
            expected_record
            for expected_record in copy.expected
            if expected_record.offset >= copy.first_offset
        ]

    def _read_source(self, tp: TopicPartition, copy: PartitionCopy) -> None:
        begin = max(copy.source_read_to, self.system.source.log(*tp).begin)
        read_result = log_reader.read_committed(self.system.source, tp, begin)
        if read_result is not None and not self.is_source_history_lost:
            records, copy.source_read_to = read_result
            copy.expected += [
                ExpectedRecord(
                    offset,
                    content,
                    self.system.schedule.now,
                    is_left_out=not self.system.is_copied(tp, offset, content),
                )
                for offset, content in records
                if offset >= copy.first_offset
            ]

    def _compare_destination(self, tp: TopicPartition, copy: PartitionCopy) -> None:
        begin = copy.destination_read_to
        read_result = log_reader.read_committed(self.system.destination, tp, begin)
        if read_result is None:
            return
        records, copy.destination_read_to = read_result
        if records and not copy.is_first_offset_known:
            raise Violation(f"{tp} has a record before the first frontier is committed")
        for offset, content in records:
            copy.compare_record(tp, offset, content, self.system.schedule.now)

    def resume(self, topic: str) -> None:
        """From now on its records have to be copied again."""
        self.paused.discard(topic)
        for source, copy in self.copies.items():
            if source.topic == topic:
                for record in copy.list_uncopied():
                    record.visible_at = self.system.schedule.now

    def is_complete(self, besides: Container[str] = ()) -> bool:
        """Whether the destination has every visible source record, besides those of topics."""
        if not all(copy.is_first_offset_known for copy in self.copies.values()):
            self.change_count = -1  # a first frontier changes no log
        self.has_violation()
        return all(
            (copy.is_first_offset_known or not copy.expected) and not copy.list_uncopied()
            for source, copy in self.copies.items()
            if source.topic not in besides
        )

    def measure_wait_s(self) -> float:
        """For how long the oldest record that is not copied has been visible."""
        visible_times = [
            uncopied_records[0].visible_at
            for source, copy in self.copies.items()
            if source.topic not in self.paused
            and copy.is_first_offset_known
            and (uncopied_records := copy.list_uncopied())
        ]
        return self.system.schedule.now - min(visible_times) if visible_times else 0.0

    def describe_missing(self) -> str:
        """A text that says which records are not copied."""
        return ", ".join(
            f"{source}: {len(uncopied_records)} of {len(copy.expected)}, from source offset"
            f" {uncopied_records[0].offset}"
            for source, copy in self.copies.items()
            if (uncopied_records := copy.list_uncopied())
        )

    def allow_missing(self, source: TopicPartition, offsets: range | frozenset[int]) -> bool:
        """The source deleted these offsets: they may be missing. Returns whether one of them was
        not copied yet.
        """
        self.has_violation()
        copy = self._find_copy(source)
        uncopied_records = copy.expected[copy.next_index :]
        missing_records = [
            record
            for record in uncopied_records
            if record.offset in offsets and not record.is_left_out
        ]
        for record in missing_records:
            record.is_optional = True
        return bool(missing_records)

    def find_last_copied_offset(self, source: TopicPartition, before_s: float = 0.0) -> int:
        """The source offset of the last record that was copied at least `before_s` ago, or -1."""
        copy = self._find_copy(source)
        return max(
            (
                record.offset
                for record in copy.expected[: copy.next_index]
                if record.copied_at <= self.system.schedule.now - before_s
            ),
            default=-1,
        )

    def find_first_uncopied_offset(self, source: TopicPartition) -> int | None:
        """The source offset of the first record that the destination has to get, or None."""
        copy = self._find_copy(source)
        uncopied_records = copy.list_uncopied() if copy.is_first_offset_known else []
        return uncopied_records[0].offset if uncopied_records else None

    def get_highest_first_offset(self, source: TopicPartition) -> int:
        """The source offset at which the copy begins, or the highest at which it can begin."""
        copy = self._find_copy(source)
        return (
            copy.first_offset if copy.is_first_offset_known else self.system.source.log(*source).end
        )

    def reset_destination(self, source_topic: str) -> None:
        """The destination topic of a source topic was recreated: compare it from its beginning."""
        for source, copy in self.copies.items():
            if source.topic != source_topic:
                continue
            copy.next_index = copy.destination_read_to = 0
            source_offsets = log_reader.list_data_offsets(self.system.source, source)
            for expected_record in copy.expected:
                expected_record.is_optional = expected_record.offset not in source_offsets

    def apply_filter(self, source: TopicPartition, begin: int) -> None:
        """Another filter decides on the records from this source offset on: none of them may be
        copied yet.
        """
        self.has_violation()
        copy = self._find_copy(source)
        last_copied_offset = self.find_last_copied_offset(source)
        if last_copied_offset >= begin and not self.is_history_lost:
            self.violation = self.violation or (
                f"a run with another filter begins at offset {begin} of {source}, but the record at"
                f" offset {last_copied_offset} is copied already"
            )
        for record in copy.expected:
            if record.offset >= begin:
                record.is_left_out = not self.system.is_copied(
                    source, record.offset, record.content
                )

    def reread_source(self, source: TopicPartition) -> None:
        """The source lost offsets that nobody had read: read the records that are not copied again.
        (The loss of a marker hides records.) What the source has deleted since it was read can be
        on its way all the same.
        """
        copy = self.copies[source]
        deleted = [record for record in copy.expected[copy.next_index :] if record.is_optional]
        copy.expected = copy.expected[: copy.next_index]
        copy.source_read_to = min(copy.source_read_to, self.find_last_copied_offset(source) + 1)
        self._read_source(source, copy)
        copy.expected += [record for record in deleted if record.offset < copy.source_read_to]
        copy.expected.sort(key=lambda record: record.offset)
        ends = self.system.ends_at_start
        if source in ends:
            ends[source] = min(ends[source], self.system.source.log(*source).end)
