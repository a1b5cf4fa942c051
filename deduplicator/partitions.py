"""The partitions of the intermediate topics that the group has assigned to this worker.

    the group's callback ──on_assigned──▶ waiting ──start──▶ assigned ──on_revoked──▶ revoked
                                             ▲                  │
                                             └───start_again────┘

A revoked partition is kept until the loop has seen it (`pop_revoked`).

The callbacks run inside the consumer's `poll` and only record events. The loop loads the frontiers,
and commits first ones, after the poll (`deduplicator.loop`). A partition that waits is not fetched,
or its fetched records are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from common.frontier import Frontier
from common.routes import TopicPartition
from deduplicator.frontier_check import Surplus
from deduplicator.partitioner import Partitioner


@dataclass(slots=True)
class AssignedPartition:
    """The state of one intermediate partition while the worker owns it."""

    next_offset: int
    frontier: Frontier
    surplus: Surplus | None = None
    partitioner: Partitioner | None = None
    """Chooses the destination partition of records, unless the route is one to one."""


class RememberedState(NamedTuple):
    """The newest state that this worker has certainly committed, of a partition that it gave up:
    more may be committed by now.
    """

    state: AssignedPartition
    generation: int | None
    """The group's, in which the partition was this worker's: in the next one nobody else can have
    had it. None after a transaction whose outcome is in doubt.
    """


class Partitions:
    """Written by the consumer's callbacks and by the loop, in one thread."""

    def __init__(self) -> None:
        self.assigned: dict[TopicPartition, AssignedPartition] = {}
        """Those whose frontier is loaded: records of others are ignored."""
        self.waiting: set[TopicPartition] = set()
        """Those whose frontier has to be loaded, or committed for the first time."""
        self.revoked: set[TopicPartition] = set()
        """Those that were revoked, or are started again: their state has to be forgotten."""
        self.generation = -1
        """The group's (with group.protocol=consumer, the member's epoch) at the last assignment."""
        self.committed: dict[TopicPartition, AssignedPartition] = {}
        """The newest state that is certainly all that is committed, of partitions that are assigned
        or wait. The group can lose it: it deletes its offsets together with a topic.
        """
        self.remembered: dict[TopicPartition, RememberedState] = {}
        """Of other partitions. A client that notices the deletion of a topic gives its partitions
        up.
        """

    def on_assigned(
        self, topic_partitions: Iterable[TopicPartition], generation: int | None = None
    ) -> None:
        """The group has assigned these to this worker, in this generation, or they are started
        again.
        """
        topic_partitions = set(topic_partitions)
        self.on_revoked(topic_partitions)
        self.waiting |= topic_partitions
        if generation is not None:
            self.generation = generation

    def on_revoked(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """The group has revoked these, or this worker has lost them."""
        for tp in topic_partitions:
            self.assigned.pop(tp, None)
            self.waiting.discard(tp)
            if tp in self.committed:
                self.remembered[tp] = RememberedState(self.committed.pop(tp), self.generation)
            self.revoked.add(tp)

    def start(self, assigned: Mapping[TopicPartition, AssignedPartition]) -> None:
        """The frontiers of these are loaded, and committed."""
        self.waiting -= assigned.keys()
        self.assigned.update(assigned)
        self.committed.update(assigned)
        for tp in assigned:
            self.remembered.pop(tp, None)

    def on_committed(self, states: Mapping[TopicPartition, AssignedPartition]) -> None:
        """These states are certainly committed."""
        for tp, state in states.items():
            if tp in self.assigned:
                self.committed[tp] = state
            elif tp in self.remembered:
                self.remembered[tp] = self.remembered[tp]._replace(state=state)

    def on_in_doubt(self) -> None:
        """Transactions have failed, and some may be committed nevertheless: load the frontiers of
        all assigned partitions again.
        """
        self.on_assigned(self.assigned)
        for tp, state in self.committed.items():  # of partitions that wait
            self.remembered[tp] = RememberedState(state, None)
        self.committed = {}
        self.remembered = {
            tp: remembered._replace(generation=None) for tp, remembered in self.remembered.items()
        }

    def start_again(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Load the frontiers of these assigned partitions again; no transaction is unfinished."""
        topic_partitions = set(topic_partitions)
        committed = {tp: state for tp, state in self.committed.items() if tp in topic_partitions}
        self.on_assigned(topic_partitions)
        self.committed.update(committed)

    def list_certain(self) -> dict[TopicPartition, AssignedPartition]:
        """What is certainly all that is committed of partitions that wait."""
        certain = self.committed | {
            tp: state
            for tp, (state, generation) in self.remembered.items()
            if generation is not None and self.generation <= generation + 1
        }
        return {tp: state for tp, state in certain.items() if tp in self.waiting}

    def pop_revoked(self) -> set[TopicPartition]:
        """Those that were revoked since the last call, also if they were assigned again."""
        revoked, self.revoked = self.revoked, set()
        return revoked
