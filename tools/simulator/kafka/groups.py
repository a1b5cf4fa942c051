"""Consumer groups: how partitions come to members, with the classic protocol: generations, static
members.

JoinGroup and SyncGroup are one step here: as soon as all members have joined, the partitions are
assigned round robin.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError

from tools.simulator.kafka.errors import BrokerError
from tools.simulator.kafka.group_members import GroupMembers, Member
from tools.simulator.schedule import Signal

if TYPE_CHECKING:
    from tools.simulator.kafka.cluster import Cluster


class Group(GroupMembers):
    """A group with its members."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        super().__init__(cluster, name)
        self.leader = ""
        self.rebalance_count = 0

    def remove(self, member_id: str) -> None:
        """A member left, or its session timed out."""
        member = self.members.pop(member_id, None)
        if member is None:
            return
        if member.instance_id is not None:
            self.instances.pop(member.instance_id, None)
        if not self.members:
            self.state, self.leader = "EMPTY", ""
            self.generation += 1
        else:
            self.leader = next(iter(self.members)) if self.leader == member_id else self.leader
            # members that have joined need not join again
            if self.state == "PREPARING_REBALANCING":
                self._complete_if_all_joined()
            else:
                self._prepare_rebalance()

    def join(
        self,
        client_id: str,
        member_id: str,
        instance_id: str | None,
        topics: list[str],
        session_timeout_s: float,
        rebalance_timeout_s: float,
    ) -> Member:
        """JoinGroup. The signal of the member comes when its `epoch` is the generation of the group
        and its partitions are assigned.
        """
        previous_member_id = self.instances.get(instance_id) if instance_id is not None else None
        if member_id:
            self.check_id(member_id, instance_id)
            member = self.members[member_id]
        elif previous_member_id is not None:
            return self._replace_static_member(previous_member_id, topics)
        else:
            member = self.add_member(client_id, instance_id)
            member.session_timeout_s, member.rebalance_timeout_s = (
                session_timeout_s,
                rebalance_timeout_s,
            )
            self.start_session(member)
        is_new, is_changed = not member_id, member.topics != topics
        member.topics, member.is_joined, member.last_heartbeat_at = topics, True, self.schedule.now
        self.leader = self.leader or member.id
        if self.state == "PREPARING_REBALANCING":
            self._complete_if_all_joined()
        elif is_new or is_changed or member.id == self.leader:
            self._prepare_rebalance(member)
        else:
            self._send_assignment(member)
        return member

    def _replace_static_member(self, previous_member_id: str, topics: list[str]) -> Member:
        """A static member comes back with a new member id. It keeps its partitions if nothing else
        has changed.
        """
        member = self.members.pop(previous_member_id)
        member.id = f"{member.instance_id}-{self.schedule.random.getrandbits(64):016x}"
        member.signal, member.last_heartbeat_at = Signal(self.schedule), self.schedule.now
        self.members[member.id] = member
        self.instances[str(member.instance_id)] = member.id
        self.leader = member.id if self.leader == previous_member_id else self.leader
        is_changed, member.topics, member.is_joined = member.topics != topics, topics, True
        if self.state == "PREPARING_REBALANCING":
            self._complete_if_all_joined()
        elif is_changed:
            self._prepare_rebalance(member)
        else:
            self._send_assignment(member)
        return member

    def _send_assignment(self, member: Member) -> None:
        member.epoch = self.generation
        member.signal.notify()

    def _prepare_rebalance(self, joined: Member | None = None) -> None:
        """Start a rebalance: all members must join again."""
        was_empty, self.state = self.state == "EMPTY", "PREPARING_REBALANCING"
        for member in self.members.values():
            member.is_joined = member is joined
        self.rebalance_count += 1
        if was_empty and self.cluster.initial_rebalance_delay_s:
            self.schedule.call_later(
                self.cluster.initial_rebalance_delay_s,
                partial(self._complete_rebalance, self.rebalance_count),
            )
            return
        longest_s = max(member.rebalance_timeout_s for member in self.members.values())
        self.schedule.call_later(longest_s, partial(self._complete_rebalance, self.rebalance_count))
        self._complete_if_all_joined()

    def _complete_if_all_joined(self) -> None:
        if all(member.is_joined for member in self.members.values()):
            self._complete_rebalance(self.rebalance_count)

    def _complete_rebalance(self, rebalance_number: int) -> None:
        """Remove dynamic members that have not joined, and assign the partitions round robin."""
        if self.rebalance_count != rebalance_number or self.state != "PREPARING_REBALANCING":
            return
        for member in [
            member
            for member in self.members.values()
            if not member.is_joined and member.instance_id is None
        ]:
            del self.members[member.id]
        if not self.members:
            self.state = "EMPTY"
            return
        if self.leader not in self.members:
            self.leader = next(iter(self.members))
        self.generation += 1
        self.state = "STABLE"
        members = sorted(self.members.values(), key=lambda member: member.instance_id or member.id)
        for member in members:
            member.assigned = []
        member_number = 0
        for topic, partition in self.list_partitions(members):
            while topic not in members[member_number % len(members)].topics:
                member_number += 1
            members[member_number % len(members)].assigned.append((topic, partition))
            member_number += 1
        for member in members:
            if member.is_joined:
                self._send_assignment(member)

    def heartbeat(self, generation: int, member_id: str, instance_id: str | None) -> None:
        """BrokerError tells the member what to do."""
        self.check_id(member_id, instance_id)
        if generation != self.generation:
            raise BrokerError(KafkaError.ILLEGAL_GENERATION)
        self.members[member_id].last_heartbeat_at = self.schedule.now
        if self.state == "PREPARING_REBALANCING":
            raise BrokerError(KafkaError.REBALANCE_IN_PROGRESS)
