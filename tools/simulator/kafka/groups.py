"""Consumer groups: how partitions come to members, with the classic protocol: generations, static
members; and which member may commit.

JoinGroup and SyncGroup are one step here: as soon as all members have joined, the partitions are
assigned round robin.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Literal

from confluent_kafka import KafkaError

from tools.simulator.kafka.errors import BrokerError
from tools.simulator.kafka.group_offsets import GroupOffsets, PartitionKey
from tools.simulator.schedule import Signal

if TYPE_CHECKING:
    from tools.simulator.kafka.cluster import Cluster

State = Literal["EMPTY", "PREPARING_REBALANCING", "STABLE"]


class Member:
    """A member of a group."""

    __slots__ = (
        "assigned",
        "client_id",
        "epoch",
        "id",
        "instance_id",
        "is_joined",
        "last_heartbeat_at",
        "rebalance_timeout_s",
        "session_timeout_s",
        "signal",
        "topics",
    )

    def __init__(
        self, schedule_signal: Signal, member_id: str, instance_id: str | None, client_id: str
    ) -> None:
        self.id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.topics: list[str] = []
        self.assigned: list[PartitionKey] = []
        self.session_timeout_s = 45.0
        self.rebalance_timeout_s = 300.0
        self.last_heartbeat_at = 0.0
        self.is_joined = False
        self.epoch = -1
        """The generation of its last assignment."""
        self.signal = schedule_signal


class Group:
    """A group with its members and its offsets."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.schedule = cluster.schedule
        self.name = name
        self.offsets = GroupOffsets(cluster)
        self.members: dict[str, Member] = {}
        self.instances: dict[str, str] = {}
        """The member id of each static member."""
        self.generation = 0
        self.state: State = "EMPTY"
        self.leader = ""
        self.rebalance_count = 0

    # ---- commits

    def commit(
        self,
        offsets: Mapping[PartitionKey, tuple[int, str]],
        generation: int = -1,
        member_id: str = "",
        instance_id: str | None = None,
    ) -> dict[PartitionKey, int]:
        """OffsetCommit: for each partition an error code, or 0."""
        self.check_member(generation, member_id, instance_id)
        return self.offsets.commit(offsets)

    def check_member(
        self,
        generation: int,
        member_id: str,
        instance_id: str | None,
        is_transactional: bool = False,
    ) -> None:
        """BrokerError for a commit that is not from a member of this generation. Without a member
        id, it is accepted if the group has no members.
        """
        if generation < 0 and not self.members:
            return
        if generation >= 0 or member_id or instance_id:
            self._check_id(member_id, instance_id)
            if generation != self.generation:
                raise BrokerError(KafkaError.ILLEGAL_GENERATION)
        elif not is_transactional:
            raise BrokerError(KafkaError.UNKNOWN_MEMBER_ID)
        if not is_transactional and self.state == "PREPARING_REBALANCING" and generation < 0:
            raise BrokerError(KafkaError.REBALANCE_IN_PROGRESS)

    def _check_id(self, member_id: str, instance_id: str | None) -> None:
        """BrokerError for a member that is unknown, or fenced."""
        if instance_id is not None and self.instances.get(instance_id, member_id) != member_id:
            raise BrokerError(KafkaError.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise BrokerError(KafkaError.UNKNOWN_MEMBER_ID)

    # ---- members

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
            self._check_id(member_id, instance_id)
            member = self.members[member_id]
        elif previous_member_id is not None:
            return self._replace_static_member(previous_member_id, topics)
        else:
            member = self._add_member(client_id, instance_id)
            member.session_timeout_s, member.rebalance_timeout_s = (
                session_timeout_s,
                rebalance_timeout_s,
            )
            self._start_session(member)
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
        for topic, partition in self._list_partitions(members):
            while topic not in members[member_number % len(members)].topics:
                member_number += 1
            members[member_number % len(members)].assigned.append((topic, partition))
            member_number += 1
        for member in members:
            if member.is_joined:
                self._send_assignment(member)

    def heartbeat(self, generation: int, member_id: str, instance_id: str | None) -> None:
        """BrokerError tells the member what to do."""
        self._check_id(member_id, instance_id)
        if generation != self.generation:
            raise BrokerError(KafkaError.ILLEGAL_GENERATION)
        self.members[member_id].last_heartbeat_at = self.schedule.now
        if self.state == "PREPARING_REBALANCING":
            raise BrokerError(KafkaError.REBALANCE_IN_PROGRESS)

    def _add_member(self, client_id: str, instance_id: str | None) -> Member:
        """Add a member with a new id."""
        member_id = f"{instance_id or client_id}-{self.schedule.random.getrandbits(64):016x}"
        member = self.members[member_id] = Member(
            Signal(self.schedule), member_id, instance_id, client_id
        )
        if instance_id is not None:
            self.instances[instance_id] = member_id
        return member

    def _start_session(self, member: Member) -> None:
        """Start the session of a member."""
        member.last_heartbeat_at = self.schedule.now
        self.schedule.call_later(member.session_timeout_s, partial(self._check_session, member))

    def _check_session(self, member: Member) -> None:
        if (
            self.members.get(member.id) is not member
            or self.cluster.groups.get(self.name) is not self
        ):
            return
        if member.is_joined and self.state == "PREPARING_REBALANCING":
            member.last_heartbeat_at = self.schedule.now
        remaining_s = member.last_heartbeat_at + member.session_timeout_s - self.schedule.now
        if remaining_s > 1e-9:
            self.schedule.call_later(remaining_s, partial(self._check_session, member))
        else:
            self.remove(member.id)

    def restart_sessions(self) -> None:
        """Start all sessions again, as a coordinator does after its restart."""
        for member in self.members.values():
            member.last_heartbeat_at = self.schedule.now

    def _list_partitions(self, members: Iterable[Member]) -> list[PartitionKey]:
        """The partitions of all topics that these members read."""
        names = sorted({topic for member in members for topic in member.topics})
        return [
            (name, partition)
            for name in names
            if name in self.cluster.topics
            for partition in range(len(self.cluster.topics[name].logs))
        ]
