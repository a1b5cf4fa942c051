"""A consumer's membership of its group: a task of its own beside the application, like librdkafka's
main thread.

It joins, sends heartbeats, and leaves events for the application's next poll: partitions assigned,
revoked or lost. It goes on only when the application has handled them. When the process is frozen
or dead, so is this task.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, Message, TopicPartition

from tools.simulator.kafka.errors import BrokerError, ConnectionLost, RequestTimedOut, create_error
from tools.simulator.kafka.groups import Member
from tools.simulator.schedule import Signal

if TYPE_CHECKING:
    from tools.simulator.kafka.consumer import Consumer

PartitionKey = tuple[str, int]
MAX_POLL_MS, SESSION_MS, HEARTBEAT_MS, REFRESH_MS = 300_000, 45_000, 3_000, 300_000
SYNC_GROUP_S = (0.0, 0.0, 0.0, 0.001, 0.05, 1.0)


class Membership:
    """JoinGroup, heartbeats, and a full rebalance with each change (the classic protocol)."""

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
        self.heartbeat_s = consumer.get_seconds("heartbeat.interval.ms", HEARTBEAT_MS)
        self.metadata_refresh_s = consumer.get_seconds(
            "topic.metadata.refresh.interval.ms", REFRESH_MS
        )
        self.partition_counts: dict[str, int] = {}
        """The number of partitions of each topic in the last metadata."""
        self.refreshed_at = self.schedule.now

    def run(self) -> None:
        """Join, then send heartbeats until the group rebalances; again and again."""
        while not self.is_over and not self.is_fatal:
            if self._join():
                self._heartbeat_until_rebalance()

    def _join(self) -> bool:
        self.is_subscription_changed = False
        consumer, topics = self.consumer, list(self.topics)

        def execute() -> Member:
            self.partition_counts = self._count_partitions()
            group = self.cluster.group(consumer.group_id)
            return group.join(
                consumer.client_id,
                self.member_id,
                self.instance_id,
                topics,
                self.session_timeout_s,
                self.max_poll_interval_s,
            )

        try:
            member = consumer.request("JoinGroup", execute, self.session_timeout_s)
        except (RequestTimedOut, ConnectionLost):
            return False
        except BrokerError as error:
            self._on_error(error)
            return False
        self.member_id = member.id
        while member.epoch < 0 or (member.is_joined and self._is_rebalancing(member)):
            self.schedule.wait(member.signal, 1.0)
            if self.is_over:
                return False
            if self._is_removed(member):
                self.member_id = ""
                return False
        self.generation, self.last_heartbeat_at, self.refreshed_at = (
            member.epoch,
            self.schedule.now,
            self.schedule.now,
        )
        assigned = set(member.assigned)
        # the answer to SyncGroup comes after that to JoinGroup, which has the generation
        self.schedule.sleep(self.schedule.random.choice(SYNC_GROUP_S))
        self.owned = set()
        self.notify_application("assign", assigned)
        return True

    def _is_rebalancing(self, member: Member) -> bool:
        group = self.cluster.groups.get(self.consumer.group_id)
        return (
            group is not None
            and group.members.get(member.id) is member
            and group.state == "PREPARING_REBALANCING"
        )

    def _is_removed(self, member: Member) -> bool:
        group = self.cluster.groups.get(self.consumer.group_id)
        return (
            member.id != self.member_id
            or group is None
            or group.members.get(self.member_id) is not member
        )

    def _heartbeat_until_rebalance(self) -> None:
        """Send heartbeats until there is a reason to join again."""
        while not self.is_over:
            self.schedule.wait(self.changed, self.heartbeat_s)
            if self.is_over or self.has_exceeded_max_poll():
                return
            if self.is_subscription_changed:
                self._revoke_all()
                return
            if self.has_new_partitions():
                if not self.is_application_due:
                    self._revoke_all()
                return
            try:
                self.consumer.request("Heartbeat", self._heartbeat, self.session_timeout_s)
                self.last_heartbeat_at = self.schedule.now
            except (RequestTimedOut, ConnectionLost):
                if self.schedule.now - self.last_heartbeat_at >= self.session_timeout_s:
                    self.member_id = ""
                    self.lose_partitions()
                    return
            except BrokerError as error:
                self._on_error(error)
                return

    def _heartbeat(self) -> None:
        group = self.cluster.groups.get(self.consumer.group_id)
        if group is None:
            raise BrokerError(KafkaError.UNKNOWN_MEMBER_ID)
        group.heartbeat(self.generation, self.member_id, self.instance_id)

    def keep_session(self) -> None:
        """Send a heartbeat while the application handles an event."""
        try:
            self.consumer.request("Heartbeat", self._heartbeat, self.heartbeat_s)
        except (RequestTimedOut, ConnectionLost, BrokerError):
            return

    def _on_error(self, error: BrokerError) -> None:
        code = error.code
        if code == KafkaError.REBALANCE_IN_PROGRESS:
            self._revoke_all()
        elif code == KafkaError.FENCED_INSTANCE_ID:
            self.is_fatal = True
            self.report_error(
                KafkaError._FATAL,
                "Fatal error: Broker: Static consumer fenced by other consumer with same"
                " group.instance.id: Fatal consumer error: Broker: Static consumer fenced by other"
                " consumer with same group.instance.id",
            )
        else:
            if code == KafkaError.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            self.lose_partitions()

    def _revoke_all(self) -> None:
        """Revoke all partitions before joining again."""
        if self.owned:
            self.notify_application("revoke", set(self.owned))
            self.wait_for_application()

    def _count_partitions(self) -> dict[str, int]:
        return {
            name: len(self.cluster.topics[name].logs)
            for name in self.topics
            if name in self.cluster.topics
        }

    def refresh_metadata(self) -> None:
        """The next look at the topics is due at once."""
        self.refreshed_at = -math.inf
        self.changed.notify()

    def has_new_partitions(self) -> bool:
        """Whether the number of partitions has changed since the member joined: then librdkafka
        joins again at once (`rd_kafka_cgrp_metadata_update_check`).
        """
        if self.schedule.now - self.refreshed_at < self.metadata_refresh_s or self.cluster.is_down:
            return False
        self.refreshed_at = self.schedule.now
        return self._count_partitions() != self.partition_counts

    def subscribe(self, topics: list[str]) -> None:
        """Subscribe to these topics, and join again."""
        self.topics = topics
        self.is_subscription_changed = True
        self.changed.notify()

    def on_handled(self) -> None:
        """The application has handled an event."""
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
            if not self.schedule.wait(self.application_done, self.heartbeat_s):
                self.keep_session()
                if self.has_new_partitions():
                    return

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
