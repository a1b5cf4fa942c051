"""A consumer's fetches: the partitions that it reads, fetched records, partition EOF, and what a
broker answers.

Fetched records wait in a buffer for the application. They are returned even if the broker has lost
them since.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    KafkaError,
    Message,
    TopicPartition,
)

from tools.simulator.kafka.errors import (
    BrokerError,
    ConnectionLost,
    RequestTimedOut,
    create_error,
)
from tools.simulator.kafka.log import Log
from tools.simulator.kafka.log_records import Record

if TYPE_CHECKING:
    from tools.simulator.kafka.consumer import Consumer

FETCH_RECORDS = 1000
RETRY_S = 0.5
SHORT_FETCH = 0.2
"""The share of fetches that return only a few records."""


class PartitionState:
    """The state of an assigned partition."""

    __slots__ = (
        "begin",
        "end",
        "eof_offset",
        "is_offset_lost",
        "is_paused",
        "leader_epoch",
        "metadata_epoch",
        "next",
        "partition",
        "position",
        "retried_at",
        "topic",
    )

    def __init__(self, topic: str, partition: int, offset: int, leader_epoch: int | None) -> None:
        self.topic = topic
        self.partition = partition
        self.next = OFFSET_STORED if offset == OFFSET_INVALID else offset
        """The next offset to fetch."""
        self.position = OFFSET_INVALID
        """The offset after the last record that the application has."""
        self.is_paused = False
        self.is_offset_lost = False
        """Whether its offset is lost, and the application has got the error."""
        self.eof_offset = -1
        """The offset of the last partition EOF that the application got."""
        self.retried_at = 0.0
        """When a partition that did not exist is asked for again."""
        self.leader_epoch = -1 if leader_epoch is None else leader_epoch
        """The leader epoch of the record before the position."""
        self.metadata_epoch = -1
        """The leader epoch of the last fetch."""
        self.begin = self.end = OFFSET_INVALID


class FetchAnswer(NamedTuple):
    """The response of a Fetch for one partition."""

    records: list[Record]
    next: int
    begin: int
    end: int
    last_stable_offset: int
    leader_epoch: int
    marker: int = -1
    """The offset after the last marker."""
    code: int = 0
    reason: str = ""


class Fetcher:
    """What a consumer reads."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.schedule, self.cluster = consumer.schedule, consumer.cluster
        self.partition_states: dict[tuple[str, int], PartitionState] = {}
        self.buffer: deque[tuple[PartitionState, Message | int]] = deque()
        """Messages, and positions that come from markers alone."""
        options = consumer.options
        self.is_eof_enabled = consumer.is_enabled("enable.partition.eof")
        self.is_read_committed = (
            options.get("isolation.level", "read_committed") == "read_committed"
        )
        self.offset_reset = {
            "earliest": OFFSET_BEGINNING,
            "beginning": OFFSET_BEGINNING,
            "smallest": OFFSET_BEGINNING,
            "error": None,
        }.get(str(options.get("auto.offset.reset", "latest")), OFFSET_END)

    def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Start reading these partitions."""
        for partition in partitions:
            state = PartitionState(
                partition.topic, partition.partition, partition.offset, partition.leader_epoch
            )
            self.partition_states[partition.topic, partition.partition] = state
            log = self.cluster.find_log(partition.topic, partition.partition)
            if log:
                log.watchers[self.consumer.data_available] = None

    def remove_partitions(self, partition_keys: Iterable[tuple[str, int]]) -> None:
        """Stop reading these partitions, and drop their messages from the buffer."""
        for partition_key in list(partition_keys):
            self.partition_states.pop(partition_key, None)
            log = self.cluster.find_log(*partition_key)
            if log:
                log.watchers.pop(self.consumer.data_available, None)
        self.buffer = deque(
            (state, message)
            for state, message in self.buffer
            if self.partition_states.get((state.topic, state.partition)) is state
        )

    def take_messages(self, count: int) -> list[Message]:
        """Take up to `count` messages from the buffer."""
        if not self.buffer:
            return []
        messages: list[Message] = []
        of_paused_partitions = deque[tuple[PartitionState, Message | int]]()
        while self.buffer and len(messages) < count:
            state, message = self.buffer.popleft()
            if state.is_paused:
                of_paused_partitions.append((state, message))
                continue
            if isinstance(message, int):
                state.position = message
                continue
            if message.error() is None:
                state.position = int(message.offset() or 0) + 1
            messages.append(message)
        self.buffer.extendleft(reversed(of_paused_partitions))
        return messages

    def fetch(self, remaining_s: float) -> None:
        """Fetch into the buffer, or wait until there is something to fetch."""
        fetched_states = [
            state for state in self.partition_states.values() if self._has_something_to_fetch(state)
        ]
        if not fetched_states or self.buffer:
            now = self.schedule.now
            retried_at = [one.retried_at for one in self.partition_states.values()]
            waits_s = [remaining_s, *(at - now for at in retried_at if at > now)]
            self.schedule.wait(self.consumer.data_available, min(waits_s))
            return
        chance = self.schedule.random
        count = chance.randint(1, 10) if chance.random() < SHORT_FETCH else FETCH_RECORDS
        try:
            answers = self.consumer.request(
                "Fetch",
                lambda: [(state, self._answer_fetch(state, count)) for state in fetched_states],
                remaining_s,
            )
        except (RequestTimedOut, ConnectionLost):
            return
        for state, answer in answers:
            if self.partition_states.get((state.topic, state.partition)) is state:
                self._on_answer(state, answer)

    def _has_something_to_fetch(self, state: PartitionState) -> bool:
        """Whether a fetch would return something. (A fetch that would not is not sent.)"""
        if state.is_paused or state.is_offset_lost or state.retried_at > self.schedule.now:
            return False
        log = self.cluster.find_log(state.topic, state.partition)
        if log is None:
            return True
        log.watchers[self.consumer.data_available] = None  # a recreated topic has another log
        if (
            state.next < 0
            or state.end < 0
            or log.end < state.next
            or log.leader_epoch != state.metadata_epoch
            or state.next < log.begin
        ):
            return True
        last_stable_offset = log.last_stable_offset if self.is_read_committed else log.end
        is_eof_due = (
            self.is_eof_enabled
            and state.eof_offset != state.next
            and state.next == last_stable_offset
        )
        return state.next < last_stable_offset or is_eof_due or state.end != log.end

    def _on_answer(self, state: PartitionState, answer: FetchAnswer) -> None:
        if answer.code == KafkaError.UNKNOWN_TOPIC_OR_PART:
            state.retried_at = self.schedule.now + RETRY_S
            self.consumer.on_unknown_topic(state.topic)
            return
        if answer.code:
            state.is_offset_lost = True
            if state.next >= 0:
                state.begin = state.end = -1
            self.buffer.append(
                (state, error_message(state, answer.next, answer.code, answer.reason))
            )
            return
        state.next, state.begin, state.end, state.metadata_epoch = (
            answer.next,
            answer.begin,
            answer.end,
            answer.leader_epoch,
        )
        topic, partition = state.topic, state.partition
        for record in answer.records:
            self.buffer.append(
                (
                    state,
                    Message(
                        topic,
                        partition,
                        record.offset,
                        record.key,
                        record.value,
                        list(record.headers) if record.headers else None,
                        None,
                        (record.timestamp_type, record.timestamp_ms),
                        0.0,
                        record.leader_epoch,
                    ),
                )
            )
        if answer.records:
            state.leader_epoch = answer.records[-1].leader_epoch
        if answer.marker > (answer.records[-1].offset if answer.records else -1):
            self.buffer.append((state, answer.marker))
        if (
            self.is_eof_enabled
            and state.next == answer.last_stable_offset
            and state.eof_offset != state.next
        ):
            state.eof_offset = state.next
            self.buffer.append(
                (
                    state,
                    error_message(
                        state,
                        state.next,
                        KafkaError._PARTITION_EOF,
                        "Fetch from broker 1 reached end of partition at offset "
                        f"{state.next} (HighwaterMark {answer.end})",
                    ),
                )
            )

    # ---- what a broker answers

    def _answer_fetch(self, state: PartitionState, count: int) -> FetchAnswer:
        """The broker's response. A logical position is resolved first."""
        try:
            log = self.cluster.log(state.topic, state.partition)
            offset = self._resolve_position(state, log)
            if state.metadata_epoch not in (-1, log.leader_epoch) or (
                state.metadata_epoch == -1 and state.leader_epoch >= 0
            ):
                lost_from = (
                    log.end_of_epoch(state.leader_epoch) if state.leader_epoch >= 0 else offset
                )
                if lost_from < offset and self.offset_reset is None:
                    raise BrokerError(
                        KafkaError._AUTO_OFFSET_RESET,
                        f"Partition log truncation detected at offset {offset} (leader epoch"
                        f" {state.leader_epoch})",
                    )
                # else the client goes on where the records that it has read end
                offset = min(offset, lost_from)
            fetched_end = log.fetched_end
            # a broker that has fewer records answers OFFSET_NOT_AVAILABLE, and is asked again
            if fetched_end < offset <= log.end:
                return FetchAnswer([], state.next, log.begin, fetched_end, -1, log.leader_epoch)
            try:
                records, following, marker = log.read(offset, count, self.is_read_committed)
            except BrokerError:
                if self.offset_reset is None:
                    raise BrokerError(
                        KafkaError._AUTO_OFFSET_RESET,
                        "fetch failed due to requested offset not available on the broker: "
                        "Broker: Offset out of range (broker 1)",
                    ) from None
                records, following, marker = log.read(
                    self.resolve_logical_offset(log, self.offset_reset),
                    count,
                    self.is_read_committed,
                )
        except BrokerError as error:
            return FetchAnswer([], state.next, -1, -1, -1, -1, -1, error.code, error.reason)
        if following > fetched_end:
            records = [record for record in records if record.offset < fetched_end]
            following, marker = fetched_end, min(marker, fetched_end)
        end = log.last_stable_offset if self.is_read_committed else log.end
        return FetchAnswer(
            records,
            following,
            log.begin,
            fetched_end,
            min(end, fetched_end),
            log.leader_epoch,
            marker,
        )

    def _resolve_position(self, state: PartitionState, log: Log) -> int:
        offset = state.next
        if offset == OFFSET_STORED:
            group = self.cluster.groups.get(self.consumer.group_id)
            committed = (
                group.offsets.fetch([(state.topic, state.partition)], self.is_read_committed)[
                    state.topic, state.partition
                ]
                if group
                else (-1, "", 0)
            )
            offset = committed[0]
            if offset < 0:
                if self.offset_reset is None:
                    raise BrokerError(
                        KafkaError._AUTO_OFFSET_RESET,
                        "no previously committed offset available: Local: No offset stored",
                    )
                offset = self.offset_reset
        return self.resolve_logical_offset(log, offset)

    def resolve_logical_offset(self, log: Log, offset: int) -> int:
        """The offset for OFFSET_BEGINNING, OFFSET_END and OFFSET_TAIL; others as they are."""
        if offset == OFFSET_BEGINNING:
            return log.begin
        if offset == OFFSET_END:
            return log.last_stable_offset if self.is_read_committed else log.end
        if offset < OFFSET_STORED - 1000:  # OFFSET_TAIL
            return max(log.begin, log.end + offset + 2000)
        return offset


def error_message(state: PartitionState, offset: int, code: int, reason: str) -> Message:
    """The error message that a poll returns in place of a record."""
    return Message(
        state.topic,
        state.partition,
        offset,
        None,
        reason.encode(),
        None,
        create_error(code, reason),
    )
