"""A consumer's member of its group: a task of its own beside the application, as librdkafka's main thread is one.

It joins, is heard of, and leaves notes for the application's next poll: partitions to take, to let go of, or lost. It goes on only when the
application has done so. When the process stands still, or is dead, so is this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, Message, TopicPartition

from simulator.kafka.groups import Member
from simulator.kafka.refused import ConnectionLost, NoAnswer, Refused, error_of
from simulator.schedule import Signal

if TYPE_CHECKING:
    from simulator.kafka.consumer import Consumer

Place = tuple[str, int]
MAX_POLL_MS, SESSION_MS, HEARTBEAT_MS, REFRESH_MS = 300_000, 45_000, 3_000, 300_000
SHARED_HEARTBEAT_S = 5.0


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
        self.owned: set[Place] = set()
        """What the application has been told to take."""
        self.is_over = False
        self.is_fatal = False
        self.has_changed = False
        """The subscription."""
        self.changed = Signal(self.schedule)
        self.is_waiting = False
        """For the application."""
        self.answered = Signal(self.schedule)
        self.session_s = consumer.seconds("session.timeout.ms", SESSION_MS)
        self.max_poll_s = consumer.seconds("max.poll.interval.ms", MAX_POLL_MS)
        self.heard_at = self.schedule.now

    def live(self) -> None:
        """The task."""
        raise NotImplementedError

    def subscribe(self, topics: list[str]) -> None:
        """Other topics, or join again."""
        self.topics = topics
        self.has_changed = True
        self.changed.notify()

    def on_let_go(self) -> None:
        """The application has let go of partitions."""
        self.is_waiting = False
        self.answered.notify()

    def on_taken(self) -> None:
        """The application has taken partitions."""
        self.is_waiting = False
        self.answered.notify()

    def leave(self) -> None:
        """Of the application: there is no member any more."""
        self.is_over = True
        self.changed.notify()
        self.answered.notify()
        member_id = self.member_id
        if member_id and self.instance_id is None and not self.is_fatal:
            try:
                self.consumer.ask("LeaveGroup", lambda: self._left(member_id), 5.0)
            except (NoAnswer, ConnectionLost, Refused):
                return

    def _left(self, member_id: str) -> None:
        group = self.cluster.groups.get(self.consumer.group_id)
        if group:
            group.remove(member_id)

    def note(self, event: str, places: set[Place]) -> None:
        """Tell the application, and wait until it has done it."""
        self.consumer.notes.append((event, [TopicPartition(*place) for place in sorted(places)]))
        self.is_waiting = True
        self.owned = self.owned | places if event == "assign" else self.owned - places
        self.consumer.wake.notify()

    def wait_for_application(self) -> None:
        """Until it polls; heartbeats go on."""
        while self.is_waiting and not self.is_over:
            if not self.schedule.wait(self.answered, self.pause_s()):
                self.beat_quietly()

    def pause_s(self) -> float:
        """Between two heartbeats."""
        return SHARED_HEARTBEAT_S

    def beat_quietly(self) -> None:
        """A heartbeat whose answer changes nothing now."""

    def fail(self, code: int, reason: str) -> None:
        """An error that the next poll returns."""
        self.consumer.notes.append(Message(value=reason.encode(), error=error_of(code, reason)))
        self.consumer.wake.notify()

    def lose(self) -> None:
        """The partitions are somebody else's by now."""
        self.generation = -1
        if self.owned:
            self.note("lost", set(self.owned))
            self.wait_for_application()

    def polls_too_late(self) -> bool:
        """Whether the application does not poll as it has to."""
        if self.schedule.now - self.consumer.polled_at <= self.max_poll_s:
            return False
        self.fail(KafkaError._MAX_POLL_EXCEEDED, f"Application maximum poll interval ({int(self.max_poll_s * 1000)}ms) exceeded")
        member_id, self.member_id = self.member_id, ""
        self.consumer.network.send(self.cluster, "LeaveGroup", lambda: self._left(member_id), 5.0, lambda *_: None)
        self.lose()
        while not self.is_over and self.schedule.now - self.consumer.polled_at > self.max_poll_s:
            self.schedule.sleep(1.0)
        return True


class ClassicMembership(Membership):
    """JoinGroup, heartbeats, and everything anew with each change."""

    def __init__(self, consumer: Consumer, topics: list[str]) -> None:
        super().__init__(consumer, topics)
        self.heartbeat_s = consumer.seconds("heartbeat.interval.ms", HEARTBEAT_MS)
        self.refresh_s = consumer.seconds("topic.metadata.refresh.interval.ms", REFRESH_MS)
        self.seen: dict[str, int] = {}
        """Partitions of each topic, as of the last metadata."""
        self.refreshed_at = self.schedule.now

    def live(self) -> None:
        """Join, then be heard of, until the group rebalances."""
        while not self.is_over and not self.is_fatal:
            if self._join():
                self._stay()

    def _join(self) -> bool:
        self.has_changed = False
        consumer, topics = self.consumer, list(self.topics)

        def execute() -> Member:
            self.seen = self._counted()
            return self.cluster.group(consumer.group_id).join(consumer.client_id, self.member_id, self.instance_id, topics, self.session_s, self.max_poll_s)
        try:
            member = consumer.ask("JoinGroup", execute, self.session_s)
        except (NoAnswer, ConnectionLost):
            return False
        except Refused as refused:
            self._refused(refused)
            return False
        self.member_id = member.id
        while member.version < 0 or (member.is_joined and self._group_prepares(member)):
            self.schedule.wait(member.signal, 1.0)
            if self.is_over:
                return False
            if self._gone(member):
                self.member_id = ""
                return False
        self.generation, self.heard_at, self.refreshed_at = member.version, self.schedule.now, self.schedule.now
        self.note("assign", set(member.assigned))
        return True

    def _group_prepares(self, member: Member) -> bool:
        group = self.cluster.groups.get(self.consumer.group_id)
        return group is not None and group.members.get(member.id) is member and group.state == "PREPARING_REBALANCING"

    def _gone(self, member: Member) -> bool:
        group = self.cluster.groups.get(self.consumer.group_id)
        return member.id != self.member_id or group is None or group.members.get(self.member_id) is not member

    def pause_s(self) -> float:
        """As the options say."""
        return self.heartbeat_s

    def _stay(self) -> None:
        """Until there is a reason to join again."""
        while not self.is_over:
            self.schedule.wait(self.changed, self.heartbeat_s)
            if self.is_over or self.polls_too_late():
                return
            if self.has_changed or self._has_grown():
                self._give_up()
                return
            try:
                self.consumer.ask("Heartbeat", self._beat, self.session_s)
                self.heard_at = self.schedule.now
            except (NoAnswer, ConnectionLost):
                if self.schedule.now - self.heard_at >= self.session_s:
                    self.member_id = ""
                    self.lose()
                    return
            except Refused as refused:
                self._refused(refused)
                return

    def _beat(self) -> None:
        group = self.cluster.groups.get(self.consumer.group_id)
        if group is None:
            raise Refused(KafkaError.UNKNOWN_MEMBER_ID)
        group.heartbeat(self.generation, self.member_id, self.instance_id)

    def beat_quietly(self) -> None:
        """While the application is waited for."""
        try:
            self.consumer.ask("Heartbeat", self._beat, self.heartbeat_s)
        except (NoAnswer, ConnectionLost, Refused):
            return

    def _refused(self, refused: Refused) -> None:
        code = refused.code
        if code == KafkaError.REBALANCE_IN_PROGRESS:
            self._give_up()
        elif code == KafkaError.FENCED_INSTANCE_ID:
            self.is_fatal = True
            self.fail(KafkaError._FATAL, "Fatal error: Broker: Static consumer fenced by other consumer with same group.instance.id: Fatal consumer error: "
                      "Broker: Static consumer fenced by other consumer with same group.instance.id")
        else:
            if code == KafkaError.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            self.lose()

    def _give_up(self) -> None:
        """Hand over the partitions, to join again."""
        if self.owned:
            self.note("revoke", set(self.owned))
            self.wait_for_application()

    def _counted(self) -> dict[str, int]:
        return {name: len(self.cluster.topics[name].logs) for name in self.topics if name in self.cluster.topics}

    def _has_grown(self) -> bool:
        """Whether the topics have other partitions than when it joined."""
        if self.schedule.now - self.refreshed_at < self.refresh_s or self.cluster.is_away:
            return False
        self.refreshed_at = self.schedule.now
        return self._counted() != self.seen
