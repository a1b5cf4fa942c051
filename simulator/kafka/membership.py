"""A consumer's member of its group: a task of its own beside the application, as librdkafka's main thread is one.

It joins, is heard of, and leaves notes for the application's next poll: partitions to take, to let go of, or lost. It goes on only when the
application has done so. When the process stands still, or is dead, so is this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, Message, TopicPartition

from simulator.kafka.errors import BrokerError, ConnectionLost, RequestTimedOut, create_error
from simulator.kafka.groups import Member
from simulator.schedule import Signal

if TYPE_CHECKING:
    from simulator.kafka.consumer import Consumer

PartitionKey = tuple[str, int]
MAX_POLL_MS, SESSION_MS, HEARTBEAT_MS, REFRESH_MS = 300_000, 45_000, 3_000, 300_000
CONSUMER_PROTOCOL_HEARTBEAT_S = 5.0


class Membership:
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
        """What the application has been told to take."""
        self.is_over = False
        self.is_fatal = False
        self.is_subscription_changed = False
        """The subscription."""
        self.changed = Signal(self.schedule)
        self.is_application_due = False
        """For the application."""
        self.application_done = Signal(self.schedule)
        self.session_timeout_s = consumer.get_seconds("session.timeout.ms", SESSION_MS)
        self.max_poll_interval_s = consumer.get_seconds("max.poll.interval.ms", MAX_POLL_MS)
        self.last_heartbeat_at = self.schedule.now

    def run(self) -> None:
        """The task."""
        raise NotImplementedError

    def subscribe(self, topics: list[str]) -> None:
        """Other topics, or join again."""
        self.topics = topics
        self.is_subscription_changed = True
        self.changed.notify()

    def on_revoked(self) -> None:
        """The application has let go of partitions."""
        self.is_application_due = False
        self.application_done.notify()

    def on_assigned(self) -> None:
        """The application has taken partitions."""
        self.is_application_due = False
        self.application_done.notify()

    def leave(self) -> None:
        """Of the application: there is no member any more."""
        self.is_over = True
        self.changed.notify()
        self.application_done.notify()
        member_id = self.member_id
        if member_id and self.instance_id is None and not self.is_fatal:
            try:
                self.consumer.request("LeaveGroup", lambda: self._remove_member(member_id), 5.0)
            except (RequestTimedOut, ConnectionLost, BrokerError):
                return

    def _remove_member(self, member_id: str) -> None:
        group = self.cluster.groups.get(self.consumer.group_id)
        if group:
            group.remove(member_id)

    def notify_application(self, event: str, partition_keys: set[PartitionKey]) -> None:
        """Tell the application, and wait until it has done it."""
        self.consumer.events.append((event, [TopicPartition(*partition_key) for partition_key in sorted(partition_keys)]))
        self.is_application_due = True
        self.owned = self.owned | partition_keys if event == "assign" else self.owned - partition_keys
        self.consumer.data_available.notify()

    def wait_for_application(self) -> None:
        """Until it polls; heartbeats go on."""
        while self.is_application_due and not self.is_over:
            if not self.schedule.wait(self.application_done, self.heartbeat_interval_s()):
                self.keep_session()

    def heartbeat_interval_s(self) -> float:
        """Between two heartbeats."""
        return CONSUMER_PROTOCOL_HEARTBEAT_S

    def keep_session(self) -> None:
        """A heartbeat whose answer changes nothing now."""

    def report_error(self, code: int, reason: str) -> None:
        """An error that the next poll returns."""
        self.consumer.events.append(Message(value=reason.encode(), error=create_error(code, reason)))
        self.consumer.data_available.notify()

    def lose_partitions(self) -> None:
        """The partitions are somebody else's by now."""
        self.generation = -1
        if self.owned:
            self.notify_application("lost", set(self.owned))
            self.wait_for_application()

    def has_exceeded_max_poll(self) -> bool:
        """Whether the application does not poll as it has to."""
        if self.schedule.now - self.consumer.polled_at <= self.max_poll_interval_s:
            return False
        self.report_error(KafkaError._MAX_POLL_EXCEEDED, f"Application maximum poll interval ({int(self.max_poll_interval_s * 1000)}ms) exceeded")
        member_id, self.member_id = self.member_id, ""
        self.consumer.network.send(self.cluster, "LeaveGroup", lambda: self._remove_member(member_id), 5.0, lambda *_: None)
        self.lose_partitions()
        while not self.is_over and self.schedule.now - self.consumer.polled_at > self.max_poll_interval_s:
            self.schedule.sleep(1.0)
        return True


class ClassicMembership(Membership):
    """JoinGroup, heartbeats, and everything anew with each change."""

    def __init__(self, consumer: Consumer, topics: list[str]) -> None:
        super().__init__(consumer, topics)
        self.heartbeat_s = consumer.get_seconds("heartbeat.interval.ms", HEARTBEAT_MS)
        self.metadata_refresh_s = consumer.get_seconds("topic.metadata.refresh.interval.ms", REFRESH_MS)
        self.partition_counts: dict[str, int] = {}
        """Partitions of each topic, as of the last metadata."""
        self.refreshed_at = self.schedule.now

    def run(self) -> None:
        """Join, then be heard of, until the group rebalances."""
        while not self.is_over and not self.is_fatal:
            if self._join():
                self._heartbeat_until_rebalance()

    def _join(self) -> bool:
        self.is_subscription_changed = False
        consumer, topics = self.consumer, list(self.topics)

        def execute() -> Member:
            self.partition_counts = self._count_partitions()
            group = self.cluster.group(consumer.group_id)
            return group.join(consumer.client_id, self.member_id, self.instance_id, topics, self.session_timeout_s, self.max_poll_interval_s)
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
        self.generation, self.last_heartbeat_at, self.refreshed_at = member.epoch, self.schedule.now, self.schedule.now
        self.notify_application("assign", set(member.assigned))
        return True

    def _is_rebalancing(self, member: Member) -> bool:
        group = self.cluster.groups.get(self.consumer.group_id)
        return group is not None and group.members.get(member.id) is member and group.state == "PREPARING_REBALANCING"

    def _is_removed(self, member: Member) -> bool:
        group = self.cluster.groups.get(self.consumer.group_id)
        return member.id != self.member_id or group is None or group.members.get(self.member_id) is not member

    def heartbeat_interval_s(self) -> float:
        """As the options say."""
        return self.heartbeat_s

    def _heartbeat_until_rebalance(self) -> None:
        """Until there is a reason to join again."""
        while not self.is_over:
            self.schedule.wait(self.changed, self.heartbeat_s)
            if self.is_over or self.has_exceeded_max_poll():
                return
            if self.is_subscription_changed or self._has_new_partitions():
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
        """While the application is waited for."""
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
            self.report_error(KafkaError._FATAL, "Fatal error: Broker: Static consumer fenced by other consumer with same group.instance.id: "
                              "Fatal consumer error: Broker: Static consumer fenced by other consumer with same group.instance.id")
        else:
            if code == KafkaError.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            self.lose_partitions()

    def _revoke_all(self) -> None:
        """Hand over the partitions, to join again."""
        if self.owned:
            self.notify_application("revoke", set(self.owned))
            self.wait_for_application()

    def _count_partitions(self) -> dict[str, int]:
        return {name: len(self.cluster.topics[name].logs) for name in self.topics if name in self.cluster.topics}

    def _has_new_partitions(self) -> bool:
        """Whether the topics have other partitions than when it joined."""
        if self.schedule.now - self.refreshed_at < self.metadata_refresh_s or self.cluster.is_down:
            return False
        self.refreshed_at = self.schedule.now
        return self._count_partitions() != self.partition_counts
