"""Consumer groups: who is a member, and has which partitions, with the classic protocol (generations, static members) and with group.protocol=consumer.

Joining and the leader's assignment are one step here: as soon as all have joined, the partitions are assigned in turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Literal

from confluent_kafka import KafkaError

from simulator.kafka.group_offsets import GroupOffsets, Place
from simulator.kafka.refused import Refused
from simulator.schedule import Signal

if TYPE_CHECKING:
    from simulator.kafka.cluster import Cluster

State = Literal["EMPTY", "PREPARING_REBALANCING", "STABLE", "ASSIGNING", "RECONCILING"]
SHARED_SESSION_S = 45.0
"""Of group.protocol=consumer the broker says it."""


class Member:
    """Of a group."""

    __slots__ = ("assigned", "client_id", "heard", "id", "instance_id", "is_joined", "rebalance_s", "session_s", "signal", "topics", "version")

    def __init__(self, schedule_signal: Signal, member_id: str, instance_id: str | None, client_id: str) -> None:
        self.id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.topics: list[str] = []
        self.assigned: list[Place] = []
        """With the new protocol: what it may have."""
        self.session_s = 45.0
        self.rebalance_s = 300.0
        self.heard = 0.0
        self.is_joined = False
        self.version = -1
        """The generation, or the member epoch, that it was told."""
        self.signal = schedule_signal


class Group(GroupOffsets):
    """Its members, with either protocol."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        super().__init__(cluster, name)
        self.members: dict[str, Member] = {}
        self.instances: dict[str, str] = {}
        """The member id of each static member."""
        self.is_shared = False
        """Whether the brokers share out (group.protocol=consumer)."""
        self.generation = 0
        self.leader = ""
        self.state: State = "EMPTY"
        self.count = 0
        self.target: dict[str, list[Place]] = {}
        """By member, with the new protocol, what it is to have in the end."""

    def check_member(self, generation: int, member_id: str, instance_id: str | None, is_transactional: bool = False) -> None:
        """Refused for a commit that is not from a member of this generation. Without any sign of a member it is taken, if there are none."""
        if generation < 0 and not self.members:
            return
        if generation >= 0 or member_id or instance_id:
            self._check_id(member_id, instance_id)
            expected = self.members[member_id].version if self.is_shared else self.generation
            if generation != expected:
                raise Refused(KafkaError.ILLEGAL_GENERATION if is_transactional or not self.is_shared else KafkaError.STALE_MEMBER_EPOCH)
        elif not is_transactional:
            raise Refused(KafkaError.UNKNOWN_MEMBER_ID)
        if not is_transactional and self.state == "PREPARING_REBALANCING" and generation < 0:
            raise Refused(KafkaError.REBALANCE_IN_PROGRESS)

    def _check_id(self, member_id: str, instance_id: str | None) -> None:
        if instance_id is not None and self.instances.get(instance_id, member_id) != member_id:
            raise Refused(KafkaError.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise Refused(KafkaError.UNKNOWN_MEMBER_ID)

    # ---- members

    def new_member(self, client_id: str, instance_id: str | None, member_id: str = "") -> Member:
        """With an id of its own."""
        member_id = member_id or f"{instance_id or client_id}-{self.schedule.random.getrandbits(64):016x}"
        member = self.members[member_id] = Member(Signal(self.schedule), member_id, instance_id, client_id)
        if instance_id is not None:
            self.instances[instance_id] = member_id
        return member

    def watch(self, member: Member) -> None:
        """Its session begins."""
        member.heard = self.schedule.now
        self.schedule.after(member.session_s, partial(self._look, member))

    def _look(self, member: Member) -> None:
        if self.members.get(member.id) is not member or self.cluster.groups.get(self.name) is not self:
            return
        if member.is_joined and self.state == "PREPARING_REBALANCING":
            member.heard = self.schedule.now
        left_s = member.heard + member.session_s - self.schedule.now
        if left_s > 1e-9:
            self.schedule.after(left_s, partial(self._look, member))
        else:
            self.remove(member.id)

    def extend_sessions(self) -> None:
        """A coordinator that has come back begins all sessions anew."""
        for member in self.members.values():
            member.heard = self.schedule.now

    def remove(self, member_id: str) -> None:
        """It left, or was not heard of in its session."""
        member = self.members.pop(member_id, None)
        if member is None:
            return
        if member.instance_id is not None:
            self.instances.pop(member.instance_id, None)
        if not self.members:
            self.state, self.leader, self.target = "EMPTY", "", {}
            self.generation += 1
        elif self.is_shared:
            self.share_out()
        else:
            self.leader = next(iter(self.members)) if self.leader == member_id else self.leader
            if self.state == "PREPARING_REBALANCING":  # who has joined need not do it again
                self._complete_if_all()
            else:
                self._prepare()

    def _topics_partitions(self, members: Iterable[Member]) -> list[Place]:
        names = sorted({topic for member in members for topic in member.topics})
        return [(name, partition) for name in names if name in self.cluster.topics for partition in range(len(self.cluster.topics[name].logs))]

    # ---- the classic protocol

    def join(self, client_id: str, member_id: str, instance_id: str | None, topics: list[str], session_s: float, rebalance_s: float) -> Member:
        """JoinGroup. The member is told its assignment by its signal, when its `version` is the group's generation."""
        if self.is_shared and self.members:
            raise Refused(KafkaError.INCONSISTENT_GROUP_PROTOCOL)
        self.is_shared = False
        known = self.instances.get(instance_id) if instance_id is not None else None
        if member_id:
            self._check_id(member_id, instance_id)
            member = self.members[member_id]
        elif known is not None:
            return self._take_place(known, topics)
        else:
            member = self.new_member(client_id, instance_id)
            member.session_s, member.rebalance_s = session_s, rebalance_s
            self.watch(member)
        is_new, is_changed = not member_id, member.topics != topics
        member.topics, member.is_joined, member.heard = topics, True, self.schedule.now
        self.leader = self.leader or member.id
        if self.state == "PREPARING_REBALANCING":
            self._complete_if_all()
        elif is_new or is_changed or member.id == self.leader:
            self._prepare(member)
        else:
            self._tell(member)
        return member

    def _take_place(self, known: str, topics: list[str]) -> Member:
        """A static member comes back: the same one, with a new id. What its predecessor had it is given, if nothing else has changed."""
        member = self.members.pop(known)
        member.id = f"{member.instance_id}-{self.schedule.random.getrandbits(64):016x}"
        member.signal, member.heard = Signal(self.schedule), self.schedule.now
        self.members[member.id] = member
        self.instances[str(member.instance_id)] = member.id
        self.leader = member.id if self.leader == known else self.leader
        is_changed, member.topics, member.is_joined = member.topics != topics, topics, True
        if self.state == "PREPARING_REBALANCING":
            self._complete_if_all()
        elif is_changed:
            self._prepare(member)
        else:
            self._tell(member)
        return member

    def _tell(self, member: Member) -> None:
        member.version = self.generation
        member.signal.notify()

    def _prepare(self, joined: Member | None = None) -> None:
        """A rebalance: all have to join again."""
        was_empty, self.state = self.state == "EMPTY", "PREPARING_REBALANCING"
        for member in self.members.values():
            member.is_joined = member is joined
        self.count += 1
        if was_empty and self.cluster.initial_rebalance_delay_s:
            self.schedule.after(self.cluster.initial_rebalance_delay_s, partial(self._complete, self.count))
            return
        longest_s = max(member.rebalance_s for member in self.members.values())
        self.schedule.after(longest_s, partial(self._complete, self.count))
        self._complete_if_all()

    def _complete_if_all(self) -> None:
        if all(member.is_joined for member in self.members.values()):
            self._complete(self.count)

    def _complete(self, count: int) -> None:
        """Who has not joined by now is no member any more, unless it is a static one; the partitions are assigned in turn."""
        if self.count != count or self.state != "PREPARING_REBALANCING":
            return
        for member in [member for member in self.members.values() if not member.is_joined and member.instance_id is None]:
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
        turn = 0
        for topic, partition in self._topics_partitions(members):
            while topic not in members[turn % len(members)].topics:
                turn += 1
            members[turn % len(members)].assigned.append((topic, partition))
            turn += 1
        for member in members:
            if member.is_joined:
                self._tell(member)

    def heartbeat(self, generation: int, member_id: str, instance_id: str | None) -> None:
        """Refused with what the member has to do."""
        self._check_id(member_id, instance_id)
        if generation != self.generation:
            raise Refused(KafkaError.ILLEGAL_GENERATION)
        self.members[member_id].heard = self.schedule.now
        if self.state == "PREPARING_REBALANCING":
            raise Refused(KafkaError.REBALANCE_IN_PROGRESS)

    # ---- group.protocol=consumer

    def heartbeat_shared(self, client_id: str, member_id: str, epoch: int, topics: list[str], owned: set[Place]) -> tuple[int, set[Place]]:
        """ConsumerGroupHeartbeat: the member's epoch, and what it may have now. Epoch 0 joins."""
        if not self.is_shared and self.members:
            raise Refused(KafkaError.GROUP_ID_NOT_FOUND)
        self.is_shared = True
        member = self.members.get(member_id)
        if member is None:
            if epoch != 0:
                raise Refused(KafkaError.UNKNOWN_MEMBER_ID)
            member = self.new_member(client_id, None, member_id)
            member.session_s = SHARED_SESSION_S
            self.watch(member)
        elif epoch not in (0, member.version):
            raise Refused(KafkaError.FENCED_MEMBER_EPOCH)
        member.heard = self.schedule.now
        is_stale = set(self._topics_partitions(self.members.values())) != {place for places in self.target.values() for place in places}
        if member.topics != topics or member.id not in self.target or is_stale:
            member.topics = topics
            self.share_out()
        wanted = set(self.target[member_id])
        if owned - wanted:
            return member.version, owned & wanted  # nobody else is given the rest before this member says that it has let go of it
        taken = {place for other in self.members.values() if other is not member for place in other.assigned}
        if epoch:
            member.assigned = sorted(owned)
        member.assigned = sorted(wanted - (taken - set(member.assigned)))
        member.version = self.generation
        return member.version, set(member.assigned)

    def share_out(self) -> None:
        """As evenly as can be, and with few moves."""
        self.generation += 1
        members = sorted(self.members.values(), key=lambda member: member.id)
        places = self._topics_partitions(members)
        most = -(-len(places) // len(members))
        target: dict[str, list[Place]] = {member.id: [] for member in members}
        left = []
        for place in places:
            holder = next((member for member in members if place in member.assigned and place[0] in member.topics), None)
            if holder is not None and len(target[holder.id]) < most:
                target[holder.id].append(place)
            else:
                left.append(place)
        for place in left:
            takers = [member for member in members if place[0] in member.topics]
            target[min(takers, key=lambda member: len(target[member.id])).id].append(place)
        self.target = target
        self.state = "STABLE"
