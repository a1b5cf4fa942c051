"""The offsets of source and destination over time, twice a second, for the picture of a run."""

from __future__ import annotations

import threading
import time

from confluent_kafka import KafkaException

from tests.harness.kafka import Clusters

EVERY_S = 0.5


class Timeline(threading.Thread):
    """Takes samples until `stop`; there is none while a cluster does not respond."""

    def __init__(self, clusters: Clusters, topic: str) -> None:
        super().__init__(daemon=True)
        self.clusters = [
            cluster.for_another_thread() for cluster in (clusters.source, clusters.destination)
        ]
        self.topic = topic
        self.started_s = time.monotonic()
        self.samples: list[tuple[float, int, int]] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        """(seconds, offsets at the source, offsets at the destination)."""
        while not self.stopping.wait(EVERY_S):
            try:
                ends = [cluster.count_offsets(self.topic) for cluster in self.clusters]
            except (KafkaException, AssertionError):
                continue
            self.samples.append((round(time.monotonic() - self.started_s, 2), ends[0], ends[1]))

    def stop(self) -> list[tuple[float, int, int]]:
        """End; returns the samples."""
        self.stopping.set()
        self.join(30)
        return self.samples
