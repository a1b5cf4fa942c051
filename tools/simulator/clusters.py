"""The clusters of one system: the source or its candidates, the destination, their topics, and the
writers at the source.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from common.partition_range import WHOLE, PartitionRange
from common.routes import Route, TopicPartition
from tools.simulator import log_reader
from tools.simulator.candidates import SourceCluster, SourceClusters
from tools.simulator.kafka import Cluster, Network
from tools.simulator.plan import Plan
from tools.simulator.schedule import START_UNIX_S, Process, Schedule

SUFFIXES = ("", "-1", "-2", "-3")
"""The topics of a plan have the first ones; a topic that appears later has the next one."""
LOAD_S = 10.0
"""For about this time, the writers write to the source."""
LATE_PAUSE_S = (5.0, 20.0)
"""Before each late record: less than a run may write nothing before it is stalled."""


def build_route(suffix: str, partitions: PartitionRange) -> Route:
    """The route of a topic."""
    intermediate = partitions.build_intermediate_topic(f"copy{suffix}")
    return Route(f"orders{suffix}", f"copy{suffix}", intermediate, partitions=partitions)


class Clusters:
    """The clusters, with the topics that are copied."""

    def __init__(self, plan: Plan, schedule: Schedule) -> None:
        self.plan = plan
        self.schedule = schedule
        self.network = Network(schedule)
        self.source = Cluster(schedule, "source", cluster_id="source-cluster")
        """The source that is copied. With several candidates: a reference cluster with all writes,
        which no client can reach.
        """
        self.destination = Cluster(schedule, "destination", cluster_id="destination-cluster")
        self.destination.record_delay_s = plan.destination_record_delay_s
        self.destination.producer_queue_records = plan.producer_queue_records
        self.candidates = (
            [Cluster(schedule, f"source{number}") for number in range(plan.candidates)]
            if plan.candidates > 1
            else []
        )
        reachable_clusters = {
            f"{cluster.name}:9092": cluster for cluster in self.candidates or [self.source]
        }
        self.network.clusters = reachable_clusters | {"destination:9092": self.destination}
        self.source_clusters: SourceClusters
        self.records_written = 0
        copied = PartitionRange(plan.first_partition)
        self.routes = [build_route(suffix, copied) for suffix in SUFFIXES[: plan.topics]]
        self.is_written = False
        """Whether the writer has finished."""
        self.written_at_s = 0.0
        """The virtual time of the last write."""

    def start_source(self) -> None:
        """Create the source topics and start the writers."""
        for route in self.routes:
            self._create_source_topic(route)
        self.source_clusters = SourceClusters(self, self.candidates)
        self.schedule.start(Process("writer"), self._write)

    @property
    def is_loading(self) -> bool:
        """Whether a source still gets records."""
        return not (self.is_written and self.source_clusters.is_every_candidate_caught_up)

    def unix_ms(self) -> int:
        """The true time."""
        return int((START_UNIX_S + self.schedule.now) * 1000)

    def find_cluster(self, cluster_settings: Any) -> Cluster:
        """The cluster with the bootstrap servers of these settings."""
        return self.network.clusters[cluster_settings.bootstrap_servers]

    # ---- topics

    def _create_source_topic(self, route: Route) -> None:
        is_compacted = self.plan.is_compacted or any(
            fault.kind == "source compacted" for fault in self.plan.faults
        )
        for cluster in (self.source, *self.candidates):
            cluster.create_topic(
                route.source_topic,
                self.plan.first_partition + self.plan.partitions,
                {"cleanup.policy": "compact"} if is_compacted else {},
            )

    def add_topic(self) -> Route | None:
        """Create one source topic more, which the pattern matches. None when there are no more
        names.
        """
        if len(self.routes) == len(SUFFIXES):
            return None
        route = build_route(SUFFIXES[len(self.routes)], WHOLE)
        self._create_source_topic(route)
        self.routes.append(route)
        return route

    def find_route(self, source_topic: str) -> Route:
        """The route of a source topic."""
        return next(route for route in self.routes if route.source_topic == source_topic)

    def list_source_partitions(self) -> list[TopicPartition]:
        """The partitions of all source topics that exist."""
        return [
            route.get_source(partition)
            for route in self.routes
            for partition in range(self.count_copied(route))
        ]

    def count_copied(self, route: Route) -> int:
        """How many partitions of its source topic a route copies now."""
        return route.partitions.count_in(
            log_reader.count_partitions(self.source, route.source_topic)
        )

    def find_intermediate(self, source: TopicPartition) -> TopicPartition:
        """The intermediate partition of a source partition."""
        return self.find_route(source.topic).find_intermediate(source)

    def find_destination(self, source: TopicPartition) -> TopicPartition:
        """The destination partition of a source partition."""
        return self.find_route(source.topic).find_destination(source)

    @property
    def is_source_topic_missing(self) -> bool:
        """Whether a source topic is deleted and not recreated yet."""
        return not all(
            log_reader.count_partitions(self.source, route.source_topic) for route in self.routes
        )

    def choose_route(self, generator: random.Random) -> Route:
        """A route at random."""
        return generator.choice(self.routes) if len(self.routes) > 1 else self.routes[0]

    # ---- the source's writers

    def _write(self) -> None:
        """Write records for about `LOAD_S`: single records and transactions. Every third
        transaction is aborted.
        """
        generator = self.schedule.random
        number = 0
        while self.records_written < self.plan.records:
            self.schedule.sleep(generator.uniform(0, 2 * LOAD_S / self.plan.records))
            if self.source.is_down or self.is_source_topic_missing:
                continue
            topic = self.choose_route(generator).source_topic
            partition, count = (
                generator.randrange(log_reader.count_partitions(self.source, topic)),
                generator.randint(1, 4),
            )
            self.written_at_s = self.schedule.now
            records = [self._create_record(topic, partition) for _ in range(count)]
            if generator.random() < self.plan.transaction_share:
                number += 1
                self.source_clusters.write(
                    partial(
                        SourceCluster.begin_transaction,
                        topic=topic,
                        partition=partition,
                        records=records,
                    )
                )
                self.schedule.sleep(generator.choice((0.0, 0.0, 0.5, 5.0)))
                self.source_clusters.write(
                    partial(SourceCluster.end_transaction, is_commit=number % 3 != 0)
                )
            else:
                self.source_clusters.write(
                    partial(SourceCluster.append, topic=topic, partition=partition, records=records)
                )
        if not self.plan.stop_at_end:
            for _ in range(self.plan.late_records):
                self._write_late_record()
        self.is_written = True

    def _write_late_record(self) -> None:
        generator = self.schedule.random
        self.schedule.sleep(generator.uniform(*LATE_PAUSE_S))
        if self.source.is_down or self.is_source_topic_missing:
            return
        self.written_at_s = self.schedule.now
        topic = self.choose_route(generator).source_topic
        partition = generator.randrange(log_reader.count_partitions(self.source, topic))
        records = [self._create_record(topic, partition)]
        self.source_clusters.write(
            partial(SourceCluster.append, topic=topic, partition=partition, records=records)
        )

    def append_records(self, tp: TopicPartition, count: int) -> None:
        """Append records to a source partition at once."""
        self.written_at_s = self.schedule.now
        self.source.append(*tp, [self._create_record(*tp) for _ in range(count)])

    def append_aborted_record(self, tp: TopicPartition) -> None:
        """An aborted transaction of one record: two offsets that no consumer sees."""
        self.written_at_s = self.schedule.now
        transaction = self.source.open_transaction()
        transaction.append(*tp, [self._create_record(*tp)])
        transaction.abort()

    def _create_record(self, topic: str, partition: int) -> tuple[Any, ...]:
        self.records_written += 1
        key = (
            None
            if self.records_written % 5 == 0 and not self.source.topics[topic].overrides
            else b"key-%d" % (self.records_written % 7)
        )
        value = (
            None if self.records_written % 11 == 0 else b"%d-%d" % (partition, self.records_written)
        )
        return (
            key,
            value,
            (("n", b"%d" % self.records_written),),
            self.unix_ms() - self.records_written,
        )
