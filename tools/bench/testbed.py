"""Two brokers on this machine, on which every contender copies."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from common.errors import ReoError
from common.kafka import partition_offsets
from common.routes import TopicPartition
from tools.bench.processes import Usage, usage_of
from tools.demo.broker import Broker

JARS = Path(__file__).parents[2] / "jars" / "broker"
BROKER_SETTINGS = {"fetch.purgatory.purge.interval.requests": "100"}
"""A broker keeps so many fetch requests that have waited, by default 1,000, each with all
partitions of its consumer: one of 2,000 is about 0.6 MB, and this heap was full.
"""
BROKER_HEAP_MB = 1024


@dataclass
class Testbed:
    """A source and a destination; `folder` has all logs."""

    folder: Path
    source: Broker
    destination: Broker
    admin: AdminClient
    """Of the destination."""

    def topics(self) -> set[str]:
        """Names of the destination's topics."""
        return set(self.admin.list_topics(timeout=10).topics)

    def list_partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """The partitions of those of these topics that the destination has."""
        topic_metadata = self.admin.list_topics(timeout=10).topics
        return [
            TopicPartition(topic, partition)
            for topic in topics
            if topic in topic_metadata
            for partition in topic_metadata[topic].partitions
        ]

    def count_arrived(self, *topics: str, committed_only: bool = False) -> int:
        """Offsets at the destination, 0 while the topic does not exist. Transaction markers are
        counted: less than one in a thousand.
        """
        partitions = self.list_partitions(topics)
        try:
            return sum(
                partition_offsets.list_end_offsets(self.admin, partitions, committed_only).values()
            )
        except (KafkaException, ReoError):  # a new topic: no leader yet
            return 0

    def delete_topics(self) -> None:
        """Delete every topic of the destination but the brokers' own, and wait until they are
        deleted: each copy starts with an empty destination.
        """
        topic_names = [name for name in self.topics() if not name.startswith("__")]
        if topic_names:
            for future in self.admin.delete_topics(topic_names, operation_timeout=30).values():
                with suppress(KafkaException):  # the contender has deleted it already
                    future.result()
        while self.topics() & set(topic_names):
            time.sleep(0.1)

    def broker_usage(self) -> dict[str, Usage]:
        """What the brokers have used so far."""
        brokers = (("source broker", self.source), ("destination broker", self.destination))
        return {
            name: usage_of([broker.process.pid] if broker.process else [])
            for name, broker in brokers
        }


@contextmanager
def start_testbed() -> Iterator[Testbed]:
    """Start both brokers; kill them and delete their data at the end of the block."""
    folder = Path(tempfile.mkdtemp(prefix="reo-bench-"))
    brokers = [
        Broker(folder / name, JARS, settings=BROKER_SETTINGS, heap_mb=BROKER_HEAP_MB)
        for name in ("source", "destination")
    ]
    try:
        for broker in brokers:
            broker.start()
        for broker in brokers:
            broker.wait()
        yield Testbed(
            folder,
            brokers[0],
            brokers[1],
            AdminClient({"bootstrap.servers": brokers[1].address, "log_level": 0}),
        )
    finally:
        for broker in brokers:
            broker.kill()
        shutil.rmtree(folder, ignore_errors=True)
