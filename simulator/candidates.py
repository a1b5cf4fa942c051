"""Identical sources: each candidate gets the same records in the same order, by a feed of its own, sooner or later.

What all of them are given is what the judge compares the copy with: a cluster that nobody reaches (`System.source`) has it at once. A candidate
that is away, or is not fed for a while, gets what it missed afterwards, in order. One whose topic was recreated with other records is fed no more.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from simulator.kafka import Cluster
from simulator.kafka.cluster import Transaction
from simulator.schedule import Process

if TYPE_CHECKING:
    from simulator.system import System

LATENESS_S = (0.0, 0.2)
"""A candidate gets something so long after it was given to all, if nothing holds it back."""
PAUSE_S = 0.05


class Fed:
    """One cluster that gets what is given to all of them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.transaction: Transaction | None = None
        """The writer has one open at a time."""
        self.received = 0
        self.is_held = False
        """Nothing comes for a while."""
        self.is_other = False
        """It has other records now."""

    def append(self, topic: str, partition: int, records: list[Any]) -> None:
        """Single records."""
        self.cluster.append(topic, partition, records)

    def begin(self, topic: str, partition: int, records: list[Any]) -> None:
        """A transaction, with its records."""
        self.transaction = self.cluster.open_transaction()
        self.transaction.append(topic, partition, records)

    def end(self, is_commit: bool) -> None:
        """Its marker."""
        assert self.transaction is not None
        (self.transaction.commit if is_commit else self.transaction.abort)()


class Source:
    """Whatever the writers write: to the one source, or to all candidates."""

    def __init__(self, system: System, clusters: list[Cluster]) -> None:
        self.system = system
        self.first = Fed(system.source)
        self.candidates = [Fed(cluster) for cluster in clusters]
        self.given: list[Callable[[Fed], None]] = []
        for candidate in self.candidates:
            system.schedule.start(Process(f"feed of {candidate.cluster.name}"), partial(self._feed, candidate))

    def write(self, act: Callable[[Fed], None]) -> None:
        """Once to each."""
        act(self.first)
        if self.candidates:
            self.given.append(act)

    @property
    def is_given(self) -> bool:
        """Whether every candidate has everything."""
        return all(candidate.is_other or candidate.received == len(self.given) for candidate in self.candidates)

    def _feed(self, candidate: Fed) -> None:
        schedule = self.system.schedule
        while not candidate.is_other and not (self.system.is_written and candidate.received == len(self.given)):
            if candidate.is_held or candidate.cluster.is_down or candidate.received == len(self.given):
                schedule.sleep(PAUSE_S)
                continue
            self.given[candidate.received](candidate)
            candidate.received += 1
            schedule.sleep(schedule.random.uniform(*LATENESS_S))

    def recreate(self, candidate: Fed, topic: str) -> int:
        """Its topic is another one now, with as many records of its own; how many."""
        ends = [log.end for log in candidate.cluster.topics[topic].logs]
        candidate.is_other = True
        candidate.cluster.delete_topic(topic)
        candidate.cluster.create_topic(topic, len(ends))
        for partition, end in enumerate(ends):
            if end:
                candidate.cluster.append(topic, partition, [(b"other", b"%d" % number, (), self.system.unix_ms()) for number in range(end + 5)])
        return sum(ends)
