"""confluent-kafka's Consumer: manual assignment or a group, and reading.

The membership of the group (`membership`) runs in a task of its own and leaves events for the
application. `poll` and `consume` handle them and run the application's callbacks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import OFFSET_INVALID, KafkaError, Message, TopicPartition

from tools.simulator.kafka.client import Client
from tools.simulator.kafka.errors import (
    BrokerError,
    ConnectionLost,
    RequestTimedOut,
    create_exception,
    create_topic_partition,
)
from tools.simulator.kafka.fetch import Fetcher
from tools.simulator.kafka.group_metadata import serialize_metadata
from tools.simulator.kafka.list_offsets import answer_list_offsets
from tools.simulator.kafka.membership import Membership
from tools.simulator.kafka.network import FOREVER_S, Network
from tools.simulator.schedule import Signal

Callback = Callable[["Consumer", list[TopicPartition]], object]


class Consumer(Client):
    """The part of the interface that reo uses."""

    def __init__(self, network: Network, options: dict[str, Any]) -> None:
        super().__init__(network, options)
        self.group_id = str(options["group.id"])
        self.membership: Membership | None = None
        self.is_closed = False
        self.data_available = Signal(self.schedule)
        self.fetcher = Fetcher(self)
        self.events: deque[tuple[str, list[TopicPartition]] | Message] = deque()
        """What the membership reports: an event and its partitions, or an error."""
        self.polled_at = self.schedule.now
        self.callbacks: dict[str, Callback | None] = {}
        self.has_assigned = False
        self.reported_topics: set[str] = set()
        """Of which the application knows that they do not exist."""

    # ---- reading

    def poll(self, timeout: float = -1) -> Message | None:
        """The next message, or an error."""
        messages = self._consume(1, timeout)
        return messages[0] if messages else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """The messages that come before the timeout, up to `num_messages`."""
        return self._consume(num_messages, timeout)

    def _consume(self, count: int, timeout_s: float) -> list[Message]:
        self.check_open()
        schedule = self.schedule
        deadline = schedule.now + (timeout_s if timeout_s >= 0 else FOREVER_S)
        messages: list[Message] = []
        while True:
            self.polled_at = schedule.now
            self.run_callbacks()
            while self.events and len(messages) < count:
                event = self.events.popleft()
                if isinstance(event, tuple):
                    self._rebalance(*event)
                else:
                    messages.append(event)
            messages += self.fetcher.take_messages(count - len(messages))
            if len(messages) == count or schedule.now >= deadline:
                return messages
            self.fetcher.fetch(deadline - schedule.now)

    def _rebalance(self, event: str, partitions: list[TopicPartition]) -> None:
        """Run the application's callback. If it does not assign or unassign, do it here."""
        callback = self.callbacks.get(event) or (
            self.callbacks.get("revoke") if event == "lost" else None
        )
        self.has_assigned = False
        try:
            if callback:
                callback(
                    self,
                    [
                        TopicPartition(partition.topic, partition.partition)
                        for partition in partitions
                    ],
                )
            if event == "assign" and not self.has_assigned:
                self.assign(partitions)
        finally:
            if self.membership:
                if event != "assign":
                    self.fetcher.remove_partitions(
                        [(partition.topic, partition.partition) for partition in partitions]
                    )
                self.membership.on_handled()

    # ---- assignment

    def subscribe(
        self,
        topics: Sequence[str],
        on_assign: Callback | None = None,
        on_revoke: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Join the group, or join again with other topics."""
        self.check_open()
        self.callbacks = {"assign": on_assign, "revoke": on_revoke, "lost": on_lost}
        if self.membership is None:
            self.membership = Membership(self, list(topics))
            self.start(self.membership.run, f"{self.client_id} of {self.group_id}")
        else:
            self.membership.subscribe(list(topics))

    def unsubscribe(self) -> None:
        """Leave the group, also as a static member."""
        self._leave(is_static_too=True)
        self.fetcher.remove_partitions(self.fetcher.partition_states)

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these partitions and no others."""
        self.check_open()
        self.has_assigned = True
        self.fetcher.remove_partitions(self.fetcher.partition_states)
        self.fetcher.add_partitions(partitions)

    def unassign(self) -> None:
        """Read nothing."""
        self.check_open()
        self.fetcher.remove_partitions(self.fetcher.partition_states)

    def assignment(self) -> list[TopicPartition]:
        """The assigned partitions."""
        return [TopicPartition(*key) for key in sorted(self.fetcher.partition_states)]

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Return no records of these partitions."""
        for partition in partitions:
            self.fetcher.partition_states[partition.topic, partition.partition].is_paused = True

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Return records of these partitions again."""
        for partition in partitions:
            self.fetcher.partition_states[partition.topic, partition.partition].is_paused = False

    def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """The offset after the last record that was returned, for each partition."""
        partition_states = [
            self.fetcher.partition_states.get((partition.topic, partition.partition))
            for partition in partitions
        ]
        return [
            create_topic_partition(
                asked.topic, asked.partition, state.position if state else OFFSET_INVALID
            )
            for asked, state in zip(partitions, partition_states, strict=True)
        ]

    # ---- offsets

    def committed(
        self, partitions: Sequence[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """The committed offsets of the group. With read_committed, wait until pending offsets are
        stable.
        """
        self.check_open()
        deadline = self.schedule.now + (timeout if timeout >= 0 else FOREVER_S)
        keys = [(partition.topic, partition.partition) for partition in partitions]
        while True:
            try:
                answers = self.request(
                    "OffsetFetch",
                    lambda: self.cluster.find_group(self.group_id).offsets.fetch(
                        keys, self.fetcher.is_read_committed
                    ),
                    deadline - self.schedule.now,
                )
            except (RequestTimedOut, ConnectionLost):
                raise create_exception(KafkaError._TIMED_OUT) from None
            if not any(
                code == KafkaError.UNSTABLE_OFFSET_COMMIT for _, _, code in answers.values()
            ):
                return [
                    create_topic_partition(
                        *key, offset if offset >= 0 else OFFSET_INVALID, metadata or None, code
                    )
                    for key, (offset, metadata, code) in ((key, answers[key]) for key in keys)
                ]
            if self.schedule.now + self.backoff_s >= deadline:
                self.schedule.sleep(deadline - self.schedule.now)
                raise create_exception(KafkaError._TIMED_OUT)
            self.schedule.sleep(self.backoff_s)

    def commit(
        self,
        message: Message | None = None,
        offsets: Sequence[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """Commit offsets of the group; as its member, if this consumer is one."""
        self.check_open()
        if message is not None:
            offsets = [
                TopicPartition(
                    str(message.topic()),
                    int(message.partition() or 0),
                    int(message.offset() or 0) + 1,
                )
            ]
        own_positions = [
            TopicPartition(*key, state.position)
            for key, state in self.fetcher.partition_states.items()
            if state.position >= 0
        ]
        positions = own_positions if offsets is None else offsets
        if not positions:
            raise create_exception(KafkaError._NO_OFFSET)
        if self.membership and self.membership.is_fatal:
            raise create_exception(KafkaError._FATAL)
        generation, member_id, instance_id = self.member()
        offsets_to_commit = {
            (position.topic, position.partition): (position.offset, position.metadata or "")
            for position in positions
        }

        def execute() -> dict[tuple[str, int], int]:
            return self.cluster.group(self.group_id).commit(
                offsets_to_commit, generation, member_id, instance_id
            )

        if asynchronous:
            self.network.send(self.cluster, "OffsetCommit", execute, 60.0, lambda *_: None)
            return None
        try:
            codes = self.request("OffsetCommit", execute, 60.0)
        except BrokerError as error:
            raise create_exception(error.code) from None
        except (RequestTimedOut, ConnectionLost):
            raise create_exception(KafkaError._TIMED_OUT) from None
        if codes and all(codes.values()):
            raise create_exception(next(iter(codes.values())))
        return [
            create_topic_partition(
                position.topic,
                position.partition,
                position.offset,
                position.metadata,
                codes[position.topic, position.partition],
            )
            for position in positions
        ]

    def offsets_for_times(
        self, partitions: Sequence[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """Offsets by timestamp; also OFFSET_END and OFFSET_BEGINNING."""
        self.check_open()
        asked = [
            (partition.topic, partition.partition, partition.offset) for partition in partitions
        ]
        try:
            answers = self.request(
                "ListOffsets",
                lambda: [
                    answer_list_offsets(self.cluster, *one, self.fetcher.is_read_committed)
                    for one in asked
                ],
                timeout,
            )
        except (RequestTimedOut, ConnectionLost):
            raise create_exception(
                KafkaError._TIMED_OUT, "Failed to get offsets: Local: Timed out"
            ) from None
        return [
            create_topic_partition(
                topic, partition, answer.offset, None, answer.code, answer.leader_epoch
            )
            for (topic, partition, _), answer in zip(asked, answers, strict=True)
        ]

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        """The low and high watermark; with `cached`, those of the last fetch."""
        self.check_open()
        key = partition.topic, partition.partition
        if cached:
            state = self.fetcher.partition_states.get(key)
            return (state.begin, state.end) if state else (OFFSET_INVALID, OFFSET_INVALID)
        try:
            return self.request(
                "ListOffsets",
                lambda: (
                    self.cluster.log(*key).begin,
                    self.fetcher.resolve_logical_offset(self.cluster.log(*key), -1),
                ),
                timeout,
            )
        except (RequestTimedOut, ConnectionLost):
            raise create_exception(KafkaError._TIMED_OUT) from None
        except BrokerError as error:
            raise create_exception(
                KafkaError._UNKNOWN_PARTITION
                if error.code == KafkaError.UNKNOWN_TOPIC_OR_PART
                else error.code
            ) from None

    # ---- the group

    def member(self) -> tuple[int, str, str | None]:
        """Generation, member id and instance id; empty values when this is no member."""
        membership = self.membership
        return (
            (membership.generation, membership.member_id, membership.instance_id)
            if membership
            else (-1, "", None)
        )

    def check_open(self) -> None:
        """RuntimeError when the consumer is closed."""
        if self.is_closed:
            raise RuntimeError("Consumer closed")

    def on_unknown_topic(self, topic: str) -> None:
        """A topic that is read does not exist: the client asks for it again, for ever. A member
        of a group reports it, once, and looks at its topics again.
        """
        if self.membership and topic not in self.reported_topics:
            self.reported_topics.add(topic)
            self.membership.report_error(
                KafkaError.UNKNOWN_TOPIC_OR_PART,
                f"Subscribed topic not available: {topic}: Broker: Unknown topic or partition",
            )
            self.membership.refresh_metadata()

    def memberid(self) -> str:
        """The member id."""
        return self.member()[1]

    def consumer_group_metadata(self) -> bytes:
        """The group metadata, as librdkafka serializes it."""
        self.check_open()
        return serialize_metadata(self.group_id, *self.member())

    def close(self) -> None:
        """Run the callbacks that wait, then the revoke callback, and leave the group. The client's
        part for the group ends while callbacks wait: calls in them fail (librdkafka #4884; there,
        some never return).
        """
        if not self.is_closed:
            waiting = [event for event in self.events if isinstance(event, tuple)]
            self.is_closed = bool(waiting)
            for event in waiting:
                self._rebalance(*event)
            self._leave()
            self.fetcher.remove_partitions(self.fetcher.partition_states)
            self.is_closed = True

    def _leave(self, is_static_too: bool = False) -> None:
        if self.membership:
            if self.membership.owned and self.callbacks and not self.membership.is_fatal:
                self._rebalance(
                    "revoke", [TopicPartition(*key) for key in sorted(self.membership.owned)]
                )
            self.membership.leave(is_static_too)
            self.membership = None
            self.events.clear()
