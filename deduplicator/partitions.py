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


class Partitions:
    """Written by the consumer's callbacks and by the loop, in one thread."""

    def __init__(self) -> None:
        self.assigned: dict[TopicPartition, AssignedPartition] = {}
        """Those whose frontier is loaded: records of others are ignored."""
        self.waiting: set[TopicPartition] = set()
        """Those whose frontier has to be loaded, or committed for the first time."""
        self.revoked: set[TopicPartition] = set()
        """Those that were revoked, or are started again: their state has to be forgotten."""
        self.last_committed: dict[TopicPartition, AssignedPartition] = {}
        """Of those that wait to be started again: the state that this worker has committed. The
        group can have lost it, because it deletes its offsets together with a topic.
        """

    def on_assigned(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """The group has assigned these to this worker."""
        topic_partitions = set(topic_partitions)
        self.on_revoked(topic_partitions)
        self.waiting |= topic_partitions

    def on_revoked(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """The group has revoked these, or this worker has lost them."""
        for tp in topic_partitions:
            self.assigned.pop(tp, None)
            self.waiting.discard(tp)
            self.last_committed.pop(tp, None)
            self.revoked.add(tp)

    def start(self, assigned: Mapping[TopicPartition, AssignedPartition]) -> None:
        """The frontiers of these are loaded, and committed."""
        self.waiting -= assigned.keys()
        self.assigned.update(assigned)
        self.last_committed = {
            tp: state for tp, state in self.last_committed.items() if tp in self.waiting
        }

    def start_again(self, topic_partitions: Iterable[TopicPartition], is_committed: bool) -> None:
        """Load the frontiers of these assigned partitions again, as after an assignment.
        `is_committed`: whether their state is certainly what the group has, or had.
        """
        states = {tp: self.assigned[tp] for tp in topic_partitions}
        self.on_assigned(states)
        if is_committed:
            self.last_committed |= states

    def pop_revoked(self) -> set[TopicPartition]:
        """Those that were revoked since the last call, also if they were assigned again."""
        revoked, self.revoked = self.revoked, set()
        return revoked
