"""A consumer's member with the classic protocol: it joins, sends heartbeats, and joins again."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError

from tools.simulator.kafka.errors import BrokerError, ConnectionLost, RequestTimedOut
from tools.simulator.kafka.group_members import Member
from tools.simulator.kafka.membership import HEARTBEAT_MS, REFRESH_MS, Membership

if TYPE_CHECKING:
    from tools.simulator.kafka.consumer import Consumer

SYNC_GROUP_S = (0.0, 0.0, 0.0, 0.001, 0.05, 1.0)


class ClassicMembership(Membership):
    """The classic protocol: JoinGroup, heartbeats, and a full rebalance with each change."""

    def __init__(self, consumer: Consumer, topics: list[str]) -> None:
        super().__init__(consumer, topics)
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

    def heartbeat_interval_s(self) -> float:
        """The option heartbeat.interval.ms."""
        return self.heartbeat_s

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
