"""Fetched messages in librdkafka's memory, and the rule applied to them by `compiled_path.c`.

`compiled_queue.Queue` fetches them. What is returned stands for records, and a Python object is
made of one only when it is asked for: records that go to Kafka are forwarded from where they are.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar, overload

from confluent_kafka import KafkaError, KafkaException, Producer

from common.frontier import Hole, LastRecord, Link, RuleState
from common.origin import OFFSET_MAX
from common.routes import TopicPartition
from deduplicator.compiled_library import Library, RawBatch, RawRule, get_rd_kafka_pointer
from deduplicator.compiled_message import Message, copy_message, read_leader_epoch
from deduplicator.unwrap import Record, compute_record_checksum

Item = TypeVar("Item")
IDENTITY = re.compile("[0-9a-f]{16}")


class FetchedMessages:
    """Messages of the intermediate topics in librdkafka's memory; destroyed when no object refers
    to them any more.
    """

    def __init__(self, library: Library) -> None:
        self.library = library
        self.raw = RawBatch()

    def __len__(self) -> int:
        return int(self.raw.count)

    def __del__(self) -> None:
        self.release()

    def release(self) -> None:
        """Destroy the messages now."""
        self.library.path.reo_free(ctypes.byref(self.raw))

    @property
    def error(self) -> KafkaError | None:
        """The error that came after these messages."""
        if not self.raw.error:
            return None
        return KafkaError(self.raw.error, self.raw.error_text.decode(errors="replace"))

    def split_by_partition(self) -> Iterator[tuple[TopicPartition, CompiledBatch]]:
        """Batches of consecutive messages of one partition; a partition may come several times."""
        raw = self.raw
        for number in range(raw.runs):
            begin, end = raw.run_begins[number : number + 2]
            topic = self.library.rd_kafka.rd_kafka_topic_name(raw.topics[begin]).decode()
            yield TopicPartition(topic, raw.partitions[begin]), CompiledBatch(self, begin, end)

    def get_message(self, position: int) -> Message:
        """One message, as a Python object."""
        return copy_message(self.library, self.raw.messages[position])

    def record(self, position: int) -> Record:
        """The source's record in a message that was scanned."""
        message = self.get_message(position)
        return (
            message.key(),
            message.value(),
            (message.headers() or [])[:-1] or None,
            int(self.raw.timestamps_ms[position]),
        )


class CompiledBatch:
    """Consecutive messages of one partition."""

    def __init__(self, fetched_messages: FetchedMessages, begin: int, end: int) -> None:
        self.fetched_messages = fetched_messages
        self.begin, self.end = begin, end
        self.next_offset = int(fetched_messages.raw.offsets[end - 1]) + 1
        """The intermediate offset to commit when the whole run is decided."""

    def __len__(self) -> int:
        return self.end - self.begin

    def is_continuation(self, next_offset: int) -> bool:
        """Whether it begins at this intermediate offset and has no gap: within a partition, offsets
        grow.
        """
        return bool(
            self.fetched_messages.raw.offsets[self.begin] == next_offset
            and self.next_offset == next_offset + len(self)
        )

    @property
    def leader_epoch(self) -> int | None:
        """Of its last message: within a partition, leader epochs grow."""
        return read_leader_epoch(
            self.fetched_messages.library, self.fetched_messages.raw.messages[self.end - 1]
        )

    def list_messages(self) -> list[Message]:
        """As Python objects."""
        return [
            self.fetched_messages.get_message(position) for position in range(self.begin, self.end)
        ]

    def scan(self, state: RuleState, source_identity: str) -> CompiledDecision | None:
        """Apply the rule; None when the batch contains something unusual."""
        identity = IDENTITY.fullmatch(source_identity) and bytes.fromhex(source_identity)
        if not identity:
            return None
        link, hole = state.link or (-1, -1, -1), state.hole or (OFFSET_MAX + 1, -1)
        raw = RawRule(state.frontier, state.epoch, *link, *hole)
        accepted = (ctypes.c_int32 * len(self))()
        path = self.fetched_messages.library.path
        count = path.reo_scan(
            ctypes.byref(self.fetched_messages.raw),
            self.begin,
            self.end,
            identity,
            ctypes.byref(raw),
            accepted,
        )
        if count < 0:
            return None
        next_state = RuleState(
            raw.frontier,
            raw.epoch,
            (
                Link(raw.link_offset, raw.link_attempt, raw.link_sequence)
                if raw.link_offset >= 0
                else None
            ),
            Hole(raw.hole_first, raw.hole_last) if raw.hole_last >= 0 else None,
        )
        return CompiledDecision(
            next_state,
            CompiledRecords(self.fetched_messages, accepted, count),
            raw.duplicates,
            raw.stale,
            raw.holes,
        )

    def describe_record(self, position: int) -> LastRecord:
        """The frontier's description of the last accepted record, which is at this position of the
        batch.
        """
        return LastRecord(
            self.fetched_messages.raw.source_offsets[position],
            compute_record_checksum(self.fetched_messages.record(position)),
        )


class LazySequence(Sequence[Item]):
    """One value for each accepted record, computed when it is read."""

    def __init__(self, positions: Any, size: int, read: Callable[[int], Item]) -> None:
        self.positions = positions
        self.size = size
        self.read = read
        """By position in the batch."""

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(self.size))]
        if not -self.size <= index < self.size:
            raise IndexError(index)
        return self.read(self.positions[index % self.size])


class CompiledRecords(LazySequence[Record]):
    """Accepted records; `forward` passes them to a producer, and Python can unwrap each one."""

    def __init__(self, fetched_messages: FetchedMessages, positions: Any, size: int) -> None:
        super().__init__(positions, size, fetched_messages.record)
        self.fetched_messages = fetched_messages
        self.source_offsets = LazySequence[int](
            positions, size, lambda position: int(fetched_messages.raw.source_offsets[position])
        )

    @property
    def last_position(self) -> int:
        """The position of the last accepted record in the batch."""
        return int(self.positions[self.size - 1])

    def forward(self, producer: Producer, tp: TopicPartition, begin: int, end: int) -> int:
        """Pass records from `begin` to `end` to the producer's queue; how many it accepted before
        it was full. KafkaException when it refuses one.
        """
        error = ctypes.c_int32()
        positions = ctypes.byref(self.positions, begin * ctypes.sizeof(ctypes.c_int32))
        batch = ctypes.byref(self.fetched_messages.raw)
        accepted = self.fetched_messages.library.path.reo_forward(
            get_rd_kafka_pointer(producer),
            tp.topic.encode(),
            tp.partition,
            batch,
            positions,
            end - begin,
            ctypes.byref(error),
        )
        if error.value not in (0, KafkaError._QUEUE_FULL):
            raise KafkaException(KafkaError(error.value, f"a record for {tp} was not accepted"))
        return int(accepted)


class CompiledDecision(NamedTuple):
    """The result of the rule for a batch."""

    state: RuleState
    records: CompiledRecords
    duplicates: int
    stale: int
    holes: int
