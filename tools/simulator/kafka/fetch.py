"""A consumer's fetches: the partitions that it reads, fetched records, partition EOF.

Fetched records wait in a buffer for the application. They are returned even if the broker has lost
them since.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaError, Message, TopicPartition

from tools.simulator.kafka.errors import ConnectionLost, RequestTimedOut, create_error
from tools.simulator.kafka.fetch_answers import FetchAnswer, FetchAnswers, PartitionState
from tools.simulator.schedule import Signal

FETCH_RECORDS = 1000
RETRY_S = 0.5
SHORT_FETCH = 0.2
"""The share of fetches that return only a few records."""


class Fetcher(FetchAnswers):
    """The part of a consumer that fetches."""

    def __init__(self, network: Any, options: Any) -> None:
        super().__init__(network, options)
        self.partition_states: dict[tuple[str, int], PartitionState] = {}
        self.buffer: deque[tuple[PartitionState, Message | int]] = deque()
        """Messages, and positions that come from markers alone."""
        self.data_available = Signal(self.schedule)
        self.is_eof_enabled = self.is_enabled("enable.partition.eof")

    def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Start reading these partitions."""
        for partition in partitions:
            state = PartitionState(
                partition.topic, partition.partition, partition.offset, partition.leader_epoch
            )
            self.partition_states[partition.topic, partition.partition] = state
            log = self.cluster.find_log(partition.topic, partition.partition)
            if log:
                log.watchers[self.data_available] = None

    def remove_partitions(self, partition_keys: Iterable[tuple[str, int]]) -> None:
        """Stop reading these partitions, and drop their messages from the buffer."""
        for partition_key in list(partition_keys):
            self.partition_states.pop(partition_key, None)
            log = self.cluster.find_log(*partition_key)
            if log:
                log.watchers.pop(self.data_available, None)
        self.buffer = deque(
            (state, message)
            for state, message in self.buffer
            if self.partition_states.get((state.topic, state.partition)) is state
        )

    def take_messages(self, count: int) -> list[Message]:
        """Take up to `count` messages from the buffer."""
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
            self.schedule.wait(self.data_available, min(waits_s))
            return
        chance = self.schedule.random
        count = chance.randint(1, 10) if chance.random() < SHORT_FETCH else FETCH_RECORDS
        try:
            answers = self.request(
                "Fetch",
                lambda: [(state, self.answer_fetch(state, count)) for state in fetched_states],
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
        log.watchers[self.data_available] = None  # a recreated topic has another log
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

    # a hook: only a member of a group reports it
    def on_unknown_topic(self, topic: str) -> None:
        """A topic that is read does not exist. The client asks for it again, for ever."""

    def _on_answer(self, state: PartitionState, answer: FetchAnswer) -> None:
        if answer.code == KafkaError.UNKNOWN_TOPIC_OR_PART:
            state.retried_at = self.schedule.now + RETRY_S
            self.on_unknown_topic(state.topic)
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
