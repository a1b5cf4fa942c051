"""The partitions of the intermediate topics that the group has assigned to this worker.

    the group's callback ──on_assigned──▶ waiting ──start──▶ assigned ──on_revoked──▶ remembered
                                             ▲                  │
                                             └───start_again────┘

Those of a halted route (`common.route_states`) are `held` instead, until it is resumed: then they
wait, and are started as after any assignment.

The callbacks run inside the consumer's `poll` and only record events. The loop loads the frontiers,
and commits first ones, after the poll (`deduplicator.loop`). A partition that waits is not fetched,
or its fetched records are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from common.frontier import Frontier
from common.routes import TopicPartition
from deduplicator.partition import Partition


@dataclass(slots=True, eq=False)
class Waiting:
    """A partition that is assigned, and whose frontier has to be loaded."""

    started_before: Partition | None = None
    """It is started again: this worker had it until now, and nobody else can have moved it."""
    loaded: Partition | None = None
    """Its frontier is loaded, but not committed yet."""


class RememberedPartition(NamedTuple):
    """One that this worker gave up, with what it has certainly committed: more may be committed by
    now.
    """

    partition: Partition
    generation: int | None
    """The group's, in which the partition was this worker's: in the next one nobody else can have
    had it. None after a transaction whose outcome is in doubt.
    """


class Partitions:
    """Written by the consumer's callbacks and by the loop, in one thread."""

    def __init__(self) -> None:
        self.assigned: dict[TopicPartition, Partition] = {}
        """Those that are started: records of others are ignored."""
        self.waiting: dict[TopicPartition, Waiting] = {}
        self.held: dict[TopicPartition, Waiting] = {}
        """Of halted routes: nothing is read, loaded or checked of them."""
        self.halted: frozenset[str] = frozenset()
        """The intermediate topics of these routes."""
        self.remembered: dict[TopicPartition, RememberedPartition] = {}
        """Of partitions that are not assigned. The group can lose what is committed: it deletes its
        offsets together with a topic, and a client that notices the deletion gives its partitions
        up.
        """
        self.generation = -1
        """The group's at the last assignment."""
        self.has_revoked = False
        """Whether any were revoked since the last start."""

    def on_assigned(
        self, topic_partitions: Iterable[TopicPartition], generation: int | None = None
    ) -> None:
        """The group has assigned these to this worker, or they are started again."""
        topic_partitions = list(topic_partitions)
        self.on_revoked(topic_partitions)
        for tp in topic_partitions:
            self._wait(tp, Waiting())
        if generation is not None:
            self.generation = generation

    def on_revoked(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """The group has revoked these, or this worker has lost them."""
        for tp in topic_partitions:
            waiting = self.waiting.pop(tp, None) or self.held.pop(tp, None) or Waiting()
            partition = self.assigned.pop(tp, waiting.started_before)
            if partition is not None:
                partition.drop()
                self.remembered[tp] = RememberedPartition(partition, self.generation)
            self.has_revoked = True

    def list_all(self) -> list[TopicPartition]:
        """All that the group has assigned."""
        return [*self.assigned, *self.waiting, *self.held]

    def _wait(self, tp: TopicPartition, waiting: Waiting) -> None:
        (self.held if tp.topic in self.halted else self.waiting)[tp] = waiting

    def hold(self, halted: frozenset[str]) -> bool:
        """The routes with these intermediate topics are halted, and no others; no transaction is
        unfinished. Whether a partition is not to be fetched any more.
        """
        if halted == self.halted:
            return False
        self.halted = halted
        started = [tp for tp in self.assigned if tp.topic in halted]
        self.start_again(started)
        unsorted = {**self.waiting, **self.held}
        self.waiting, self.held = {}, {}
        for tp, waiting in unsorted.items():
            self._wait(tp, waiting)
        return bool(started)

    def on_loaded(self, partitions: Iterable[Partition]) -> None:
        """The frontiers of these are loaded, and perhaps not committed yet."""
        for partition in partitions:
            self.waiting[partition.tp].loaded = partition

    def list_loaded(self) -> list[Partition]:
        """Those that wait, with a loaded frontier: its commit has failed."""
        return [waiting.loaded for waiting in self.waiting.values() if waiting.loaded]

    def start(self, partitions: Iterable[Partition]) -> None:
        """The frontiers of these are loaded, and committed."""
        for partition in partitions:
            partition.on_committed()
            partition.is_assigned = True
            self.waiting.pop(partition.tp, None)
            self.remembered.pop(partition.tp, None)
            self.assigned[partition.tp] = partition

    def start_again(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Load the frontiers of these assigned partitions again; no transaction is unfinished."""
        for tp in list(topic_partitions):
            partition = self.assigned.pop(tp)
            partition.drop()
            self._wait(tp, Waiting(started_before=partition))
            self.has_revoked = True

    def on_in_doubt(self) -> None:
        """Transactions have failed, and some may be committed nevertheless: load the frontiers of
        all assigned partitions again.
        """
        for tp, waiting in (self.waiting | self.held).items():
            if waiting.started_before is not None:
                self.remembered[tp] = RememberedPartition(waiting.started_before, None)
                waiting.started_before = None
        self.on_assigned(self.assigned)
        self.remembered = {
            tp: remembered._replace(generation=None) for tp, remembered in self.remembered.items()
        }

    def list_known(self) -> dict[TopicPartition, Frontier]:
        """The frontiers that this worker knows of partitions that wait, in case the group has lost
        them: those that are certainly the last ones, and on a route that is one to one also others.
        There it is certain to be found when more is committed: the records of the destination are
        compared with the frontier.
        """
        known = {tp: waiting.started_before for tp, waiting in self.waiting.items()}
        for tp, (partition, generation) in self.remembered.items():
            is_last = generation is not None and self.generation <= generation + 1
            if tp in known and (is_last or partition.route.is_one_to_one):
                known[tp] = known[tp] or partition
        return {
            tp: partition.committed
            for tp, partition in known.items()
            if partition is not None and partition.committed is not None
        }

    def list_decided(self) -> list[Partition]:
        """Those of which the present round has decisions."""
        return [partition for partition in self.assigned.values() if partition.decisions]

    def drop_decisions(self) -> None:
        """Nothing of the present round is written."""
        for partition in self.assigned.values():
            partition.decisions = None
