"""confluent-kafka's Consumer: manual assignment or a group, and reading.

The membership of the group (`membership`) runs in a task of its own and leaves events for the
application. `poll` and `consume` handle them and run the application's callbacks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import OFFSET_INVALID, KafkaError, Message, TopicPartition

from tools.simulator.kafka.consumer_commits import ConsumerOffsets
from tools.simulator.kafka.errors import create_topic_partition
from tools.simulator.kafka.group_metadata import serialize_metadata
from tools.simulator.kafka.membership import Membership
from tools.simulator.kafka.network import FOREVER_S, Network

Callback = Callable[["Consumer", list[TopicPartition]], object]


class Consumer(ConsumerOffsets):
    """The part of the interface that reo uses."""

    def __init__(self, network: Network, options: dict[str, Any]) -> None:
        super().__init__(network, options)
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
            messages += self.take_messages(count - len(messages))
            if len(messages) == count or schedule.now >= deadline:
                return messages
            self.fetch(deadline - schedule.now)

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
                    self.remove_partitions(
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
        self.remove_partitions(self.partition_states)

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these partitions and no others."""
        self.check_open()
        self.has_assigned = True
        self.remove_partitions(self.partition_states)
        self.add_partitions(partitions)

    def unassign(self) -> None:
        """Read nothing."""
        self.check_open()
        self.remove_partitions(self.partition_states)

    def assignment(self) -> list[TopicPartition]:
        """The assigned partitions."""
        return [TopicPartition(*key) for key in sorted(self.partition_states)]

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Return no records of these partitions."""
        for partition in partitions:
            self.partition_states[partition.topic, partition.partition].is_paused = True

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Return records of these partitions again."""
        for partition in partitions:
            self.partition_states[partition.topic, partition.partition].is_paused = False

    def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """The offset after the last record that was returned, for each partition."""
        partition_states = [
            self.partition_states.get((partition.topic, partition.partition))
            for partition in partitions
        ]
        return [
            create_topic_partition(
                asked.topic, asked.partition, state.position if state else OFFSET_INVALID
            )
            for asked, state in zip(partitions, partition_states, strict=True)
        ]

    # ---- the group

    def on_unknown_topic(self, topic: str) -> None:
        """A member reports a topic that does not exist, once, and looks at its topics again."""
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
            self.remove_partitions(self.partition_states)
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
