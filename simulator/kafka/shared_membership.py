"""A consumer's member with group.protocol=consumer (KIP-848): the brokers say with each heartbeat what it may have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.kafka.membership import SHARED_HEARTBEAT_S, Membership, Place
from simulator.kafka.refused import ConnectionLost, NoAnswer, Refused

if TYPE_CHECKING:
    from simulator.kafka.consumer import Consumer


class SharedMembership(Membership):
    """group.protocol=consumer: the brokers say what to take and to let go of."""

    def __init__(self, consumer: Consumer, topics: list[str]) -> None:
        super().__init__(consumer, topics)
        self.instance_id = None
        self.has_let_go = False

    def live(self) -> None:
        """One heartbeat after the other."""
        self.member_id = f"{self.schedule.random.getrandbits(96):024x}"
        self.generation = 0
        while not self.is_over:
            try:
                epoch, given = self.consumer.ask("ConsumerGroupHeartbeat", self._beat, SHARED_HEARTBEAT_S)
            except (NoAnswer, ConnectionLost):
                continue
            except Refused:
                self.lose()
                self.generation = 0
                continue
            self.generation = epoch
            if self._follow(given) or self.is_over:
                continue
            self.schedule.wait(self.changed, SHARED_HEARTBEAT_S)
            if self.polls_too_late():
                self.member_id, self.generation = f"{self.schedule.random.getrandbits(96):024x}", 0

    def _follow(self, given: set[Place]) -> bool:
        """Whether something was let go of or taken: then the broker is told at once."""
        if self.owned - given:
            self.note("revoke", self.owned - given)
            self.has_let_go = True
        elif given - self.owned or self.has_let_go:  # what is left is said again
            self.note("assign", given - self.owned)
            self.has_let_go = False
        else:
            return False
        self.wait_for_application()
        return True

    def _beat(self) -> tuple[int, set[Place]]:
        group = self.cluster.group(self.consumer.group_id)
        return group.heartbeat_shared(self.consumer.client_id, self.member_id, self.generation, list(self.topics), set(self.owned))

    def beat_quietly(self) -> None:
        """While the application is waited for: what it still has is not reported as let go of."""
        group = self.cluster.groups.get(self.consumer.group_id)
        member = group.members.get(self.member_id) if group else None
        if member and not self.cluster.is_away:
            member.heard = self.schedule.now
