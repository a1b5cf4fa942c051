"""The records of source and destination over time, twice a second, for the picture of a run.

Records are counted as a `read_committed` consumer receives them. End offsets also count markers
and aborted records, so their difference is not 0 when the copy is complete.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.harness.kafka import Cluster, Clusters

EVERY_S = 0.5
BATCH_RECORDS = 10_000


class RecordCounter:
    """Counts the visible records of one topic."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.cluster = cluster.for_another_thread()
        self.topic = topic
        self.records = 0
        self.consumer: Consumer | None = None

    def count_records(self) -> int | None:
        """The visible records so far; 0 before the topic exists, None when the cluster does not
        answer.
        """
        partitions = self.cluster.partitions(self.topic)
        if not partitions:
            return None if self.consumer else 0
        if self.consumer is None:
            self.consumer = self._create_consumer(partitions)
        while True:
            messages: list[Any] = self.consumer.consume(BATCH_RECORDS, 0)
            if not messages:
                return self.records
            self.records += sum(message.error() is None for message in messages)

    def close(self) -> None:
        """Close the consumer."""
        if self.consumer is not None:
            self.consumer.close()

    def _create_consumer(self, partitions: int) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self.cluster.address,
                "group.id": "timeline",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "reconnect.backoff.max.ms": 500,
                "fetch.wait.max.ms": 100,
                "log_level": 0,
            }
        )
        consumer.assign(
            [TopicPartition(self.topic, partition, 0) for partition in range(partitions)]
        )
        return consumer


class Timeline(threading.Thread):
    """Takes samples until `stop`; there is none while a cluster does not answer."""

    def __init__(self, clusters: Clusters, topic: str) -> None:
        super().__init__(daemon=True)
        self.counters = [
            RecordCounter(cluster, topic) for cluster in (clusters.source, clusters.destination)
        ]
        self.started_s = time.monotonic()
        self.samples: list[tuple[float, int, int]] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        """(seconds, records at the source, records at the destination)."""
        while not self.stopping.wait(EVERY_S):
            try:
                source_records, destination_records = (
                    counter.count_records() for counter in self.counters
                )
            except (KafkaException, TimeoutError):
                continue
            if source_records is not None and destination_records is not None:
                self.samples.append(
                    (
                        round(time.monotonic() - self.started_s, 2),
                        source_records,
                        destination_records,
                    )
                )
        for counter in self.counters:
            counter.close()

    def stop(self) -> list[tuple[float, int, int]]:
        """End; returns the samples."""
        self.stopping.set()
        self.join(30)
        return self.samples
