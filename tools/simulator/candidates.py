"""Source candidates: several clusters that get the same records in the same order, each with a
delay of its own.

The judge compares the copy with a reference cluster that no client can reach (`Clusters.source`)
and that gets every write at once. A candidate that is down or paused gets the missed writes later,
in order. A candidate whose topic was recreated with other records gets no more writes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tools.simulator.kafka import Cluster
from tools.simulator.kafka.cluster import Transaction
from tools.simulator.schedule import Process

if TYPE_CHECKING:
    from tools.simulator.clusters import Clusters

FEED_DELAY_S = (0.0, 0.2)
"""The delay of a write at a candidate that is neither down nor paused."""
PAUSE_S = 0.05


class SourceCluster:
    """One of the clusters that get the same writes."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.transaction: Transaction | None = None
        """The open transaction; the writer has one at a time."""
        self.received_writes = 0
        self.is_paused = False
        """Whether it gets no writes for a while."""
        self.is_recreated = False
        """Whether its topic was recreated with other records."""

    def append(self, topic: str, partition: int, records: list[Any]) -> None:
        """Write records without a transaction."""
        self.cluster.append(topic, partition, records)

    def begin_transaction(self, topic: str, partition: int, records: list[Any]) -> None:
        """Begin a transaction and write its records."""
        self.transaction = self.cluster.open_transaction()
        self.transaction.append(topic, partition, records)

    def end_transaction(self, is_commit: bool) -> None:
        """Commit or abort the open transaction."""
        assert self.transaction is not None
        (self.transaction.commit if is_commit else self.transaction.abort)()


class SourceClusters:
    """Sends every write to the source, or to all candidates."""

    def __init__(self, system: Clusters, clusters: list[Cluster]) -> None:
        self.system = system
        self.reference = SourceCluster(system.source)
        self.candidates = [SourceCluster(cluster) for cluster in clusters]
        self.writes: list[Callable[[SourceCluster], None]] = []
        for candidate in self.candidates:
            system.schedule.start(
                Process(f"feed of {candidate.cluster.name}"), partial(self._feed, candidate)
            )

    def write(self, operation: Callable[[SourceCluster], None]) -> None:
        """Send one write to every cluster."""
        operation(self.reference)
        if self.candidates:
            self.writes.append(operation)

    @property
    def is_every_candidate_caught_up(self) -> bool:
        """Whether every candidate has every write."""
        return all(
            candidate.is_recreated or candidate.received_writes == len(self.writes)
            for candidate in self.candidates
        )

    def _feed(self, candidate: SourceCluster) -> None:
        schedule = self.system.schedule
        while not candidate.is_recreated and not (
            self.system.is_written and candidate.received_writes == len(self.writes)
        ):
            if (
                candidate.is_paused
                or candidate.cluster.is_down
                or candidate.received_writes == len(self.writes)
            ):
                schedule.sleep(PAUSE_S)
                continue
            self.writes[candidate.received_writes](candidate)
            candidate.received_writes += 1
            schedule.sleep(schedule.random.uniform(*FEED_DELAY_S))

    def recreate(self, candidate: SourceCluster, topic: str) -> int:
        """Recreate the topic of a candidate with at least as many other records. Returns how many
        it had.
        """
        ends = [log.end for log in candidate.cluster.topics[topic].logs]
        candidate.is_recreated = True
        candidate.cluster.delete_topic(topic)
        candidate.cluster.create_topic(topic, len(ends))
        for partition, end in enumerate(ends):
            if end:
                candidate.cluster.append(
                    topic,
                    partition,
                    [
                        (b"other", b"%d" % number, (), self.system.unix_ms())
                        for number in range(end + 5)
                    ],
                )
        return sum(ends)
