"""The members of a consumer group: their ids, their sessions, and which of them may commit."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
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


class GroupMembers(GroupOffsets):
    """The part of a group that knows its members. `Group` gives them partitions."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        super().__init__(cluster, name)
        self.members: dict[str, Member] = {}
        self.instances: dict[str, str] = {}
        """The member id of each static member."""
        self.generation = 0
        self.state: State = "EMPTY"
        self.rebalance_count = 0

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
            self.check_id(member_id, instance_id)
            if generation != self.generation:
                raise BrokerError(KafkaError.ILLEGAL_GENERATION)
        elif not is_transactional:
            raise BrokerError(KafkaError.UNKNOWN_MEMBER_ID)
        if not is_transactional and self.state == "PREPARING_REBALANCING" and generation < 0:
            raise BrokerError(KafkaError.REBALANCE_IN_PROGRESS)

    def check_id(self, member_id: str, instance_id: str | None) -> None:
        """BrokerError for a member that is unknown, or fenced."""
        if instance_id is not None and self.instances.get(instance_id, member_id) != member_id:
            raise BrokerError(KafkaError.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise BrokerError(KafkaError.UNKNOWN_MEMBER_ID)

    def add_member(self, client_id: str, instance_id: str | None) -> Member:
        """Add a member with a new id."""
        member_id = f"{instance_id or client_id}-{self.schedule.random.getrandbits(64):016x}"
        member = self.members[member_id] = Member(
            Signal(self.schedule), member_id, instance_id, client_id
        )
        if instance_id is not None:
            self.instances[instance_id] = member_id
        return member

    def start_session(self, member: Member) -> None:
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

    def list_partitions(self, members: Iterable[Member]) -> list[PartitionKey]:
        """The partitions of all topics that these members read."""
        names = sorted({topic for member in members for topic in member.topics})
        return [
            (name, partition)
            for name in names
            if name in self.cluster.topics
            for partition in range(len(self.cluster.topics[name].logs))
        ]

    @abstractmethod
    def remove(self, member_id: str) -> None:
        """A member left, or its session timed out."""
