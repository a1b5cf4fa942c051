"""A consumer's member with group.protocol=consumer (KIP-848): each heartbeat response has its
assignment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.simulator.kafka.errors import BrokerError, ConnectionLost, RequestTimedOut
from tools.simulator.kafka.membership import CONSUMER_PROTOCOL_HEARTBEAT_S, Membership, PartitionKey

if TYPE_CHECKING:
    from tools.simulator.kafka.consumer import Consumer


class ConsumerProtocolMembership(Membership):
    """group.protocol=consumer: the brokers assign and revoke partitions."""

    def __init__(self, consumer: Consumer, topics: list[str]) -> None:
        super().__init__(consumer, topics)
        self.instance_id = None
        self.has_revoked = False

    def run(self) -> None:
        """Send heartbeats."""
        self.member_id = f"{self.schedule.random.getrandbits(96):024x}"
        self.generation = 0
        while not self.is_over:
            try:
                epoch, assigned = self.consumer.request(
                    "ConsumerGroupHeartbeat", self._heartbeat, CONSUMER_PROTOCOL_HEARTBEAT_S
                )
            except (RequestTimedOut, ConnectionLost):
                continue
            except BrokerError:
                self.lose_partitions()
                self.generation = 0
                continue
            self.generation = epoch
            if self._apply_assignment(assigned) or self.is_over:
                continue
            self.schedule.wait(self.changed, CONSUMER_PROTOCOL_HEARTBEAT_S)
            if self.has_exceeded_max_poll():
                self.member_id, self.generation = f"{self.schedule.random.getrandbits(96):024x}", 0

    def _apply_assignment(self, assigned: set[PartitionKey]) -> bool:
        """Revoke or assign partitions. Returns whether something changed: then the next heartbeat
        is sent at once.
        """
        if self.owned - assigned:
            self.notify_application("revoke", self.owned - assigned)
            self.has_revoked = True
        # librdkafka assigns the remaining partitions again
        elif assigned - self.owned or self.has_revoked:
            self.notify_application("assign", assigned - self.owned)
            self.has_revoked = False
        else:
            return False
        self.wait_for_application()
        return True

    def _heartbeat(self) -> tuple[int, set[PartitionKey]]:
        group = self.cluster.group(self.consumer.group_id)
        return group.consumer_group_heartbeat(
            self.consumer.client_id,
            self.member_id,
            self.generation,
            list(self.topics),
            set(self.owned),
        )

    def keep_session(self) -> None:
        """Keep the session while the application handles an event. The partitions that it still
        owns are not reported as revoked.
        """
        group = self.cluster.groups.get(self.consumer.group_id)
        member = group.members.get(self.member_id) if group else None
        if member and not self.cluster.is_down:
            member.last_heartbeat_at = self.schedule.now
