"""A consumer's membership of its group: a task of its own beside the application, like librdkafka's
main thread.

It joins, sends heartbeats, and leaves events for the application's next poll: partitions assigned,
revoked or lost. It goes on only when the application has handled them. When the process is frozen
or dead, so is this task.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, Message, TopicPartition

from tools.simulator.kafka.errors import BrokerError, ConnectionLost, RequestTimedOut, create_error
from tools.simulator.schedule import Signal

if TYPE_CHECKING:
    from tools.simulator.kafka.consumer import Consumer

PartitionKey = tuple[str, int]
MAX_POLL_MS, SESSION_MS, HEARTBEAT_MS, REFRESH_MS = 300_000, 45_000, 3_000, 300_000
CONSUMER_PROTOCOL_HEARTBEAT_S = 5.0


class Membership(ABC):
    """What both protocols have in common."""

    def __init__(self, consumer: Consumer, topics: list[str]) -> None:
        self.consumer = consumer
        self.schedule = consumer.schedule
        self.cluster = consumer.cluster
        self.topics = topics
        self.generation = -1
        self.member_id = ""
        instance = consumer.options.get("group.instance.id")
        self.instance_id = None if instance is None else str(instance)
        self.owned: set[PartitionKey] = set()
        """The partitions that are assigned to the application."""
        self.is_over = False
        self.is_fatal = False
        self.is_subscription_changed = False
        """Whether the member must join again."""
        self.changed = Signal(self.schedule)
        self.is_application_due = False
        """Whether the task waits for the application."""
        self.application_done = Signal(self.schedule)
        self.session_timeout_s = consumer.get_seconds("session.timeout.ms", SESSION_MS)
        self.max_poll_interval_s = consumer.get_seconds("max.poll.interval.ms", MAX_POLL_MS)
        self.last_heartbeat_at = self.schedule.now

    @abstractmethod
    def run(self) -> None:
        """The task."""

    def subscribe(self, topics: list[str]) -> None:
        """Subscribe to these topics, and join again."""
        self.topics = topics
        self.is_subscription_changed = True
        self.changed.notify()

    def on_revoked(self) -> None:
        """The application has revoked partitions."""
        self.is_application_due = False
        self.application_done.notify()

    def on_assigned(self) -> None:
        """The application has assigned partitions."""
        self.is_application_due = False
        self.application_done.notify()

    def leave(self, is_static_too: bool) -> None:
        """Called by the application: leave the group and end the task. A static member stays in
        the group when its consumer is closed (KIP-345).
        """
        self.is_over = True
        self.changed.notify()
        self.application_done.notify()
        member_id = self.member_id
        if member_id and (self.instance_id is None or is_static_too) and not self.is_fatal:
            try:
                self.consumer.request("LeaveGroup", lambda: self._remove_member(member_id), 5.0)
            except (RequestTimedOut, ConnectionLost, BrokerError):
                return

    def _remove_member(self, member_id: str) -> None:
        group = self.cluster.groups.get(self.consumer.group_id)
        if group:
            group.remove(member_id)

    def notify_application(self, event: str, partition_keys: set[PartitionKey]) -> None:
        """Leave an event for the application."""
        self.consumer.events.append(
            (event, [TopicPartition(*partition_key) for partition_key in sorted(partition_keys)])
        )
        self.is_application_due = True
        self.owned = (
            self.owned | partition_keys if event == "assign" else self.owned - partition_keys
        )
        self.consumer.data_available.notify()

    def wait_for_application(self) -> None:
        """Wait until the application has polled, or the member joins again without it; heartbeats
        go on.
        """
        while self.is_application_due and not self.is_over:
            if not self.schedule.wait(self.application_done, self.heartbeat_interval_s()):
                self.keep_session()
                if self.has_new_partitions():
                    return

    def has_new_partitions(self) -> bool:
        """Whether the member joins again because a topic has new partitions. With
        group.protocol=consumer the brokers see that.
        """
        return False

    # a hook, as well
    def refresh_metadata(self) -> None:  # noqa: B027
        """Look at the topics now, not when the next refresh is due."""

    def heartbeat_interval_s(self) -> float:
        """The time between two heartbeats."""
        return CONSUMER_PROTOCOL_HEARTBEAT_S

    # a hook: the consumer protocol needs nothing here
    def keep_session(self) -> None:  # noqa: B027
        """Send a heartbeat and ignore its response."""

    def report_error(self, code: int, reason: str) -> None:
        """Leave an error for the next poll."""
        self.consumer.events.append(
            Message(value=reason.encode(), error=create_error(code, reason))
        )
        self.consumer.data_available.notify()

    def lose_partitions(self) -> None:
        """The partitions are lost: another member may own them."""
        self.generation = -1
        if self.owned:
            self.notify_application("lost", set(self.owned))
            self.wait_for_application()

    def has_exceeded_max_poll(self) -> bool:
        """Whether the application has exceeded max.poll.interval.ms; then leave the group until it
        polls.
        """
        if self.schedule.now - self.consumer.polled_at <= self.max_poll_interval_s:
            return False
        self.report_error(
            KafkaError._MAX_POLL_EXCEEDED,
            f"Application maximum poll interval ({int(self.max_poll_interval_s * 1000)}ms)"
            " exceeded",
        )
        member_id, self.member_id = self.member_id, ""
        self.consumer.network.send(
            self.cluster, "LeaveGroup", lambda: self._remove_member(member_id), 5.0, lambda *_: None
        )
        self.lose_partitions()
        while (
            not self.is_over
            and self.schedule.now - self.consumer.polled_at > self.max_poll_interval_s
        ):
            self.schedule.sleep(1.0)
        return True
