"""A consumer with a queue of the compiled path's, and topics with origins for it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientTopicPartition

from common.origin import HEADER, Origin, encode
from common.routes import TopicPartition
from deduplicator.compiled_batch import FetchedMessages
from deduplicator.compiled_queue import Queue
from tests.harness.judge import Record
from tests.harness.kafka import Clusters, until
from tests.harness.task_attempts import IDENTITY


class Reader:
    """A consumer with a queue of ours, assigned by hand."""

    def __init__(self, clusters: Clusters) -> None:
        self.consumer = Consumer(
            {
                "bootstrap.servers": clusters.destination.address,
                "group.id": "compiled",
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
            }
        )
        self.queue = Queue(self.consumer)

    def assign(self, *topic_partitions: tuple[TopicPartition, int]) -> None:
        """From these offsets on."""
        self.queue.forward_partitions(tp for tp, _ in topic_partitions)
        self.consumer.assign([ClientTopicPartition(*tp, offset) for tp, offset in topic_partitions])

    def take(self, count: int) -> list[FetchedMessages]:
        """Batches with so many messages."""
        batches: list[FetchedMessages] = []

        def has_enough() -> bool:
            batches.append(self._consume_batch())
            return sum(map(len, batches)) >= count

        until(has_enough, f"{count} messages are taken")
        return batches

    def take_offsets(self, count: int) -> dict[TopicPartition, list[int]]:
        """The offsets of so many messages or a few more, by partition, in the order of the
        queue.
        """
        offsets: dict[TopicPartition, list[int]] = {}
        for taken in self.take(count):
            for tp, run in taken.split_by_partition():
                offsets.setdefault(tp, []).extend(
                    range(run.next_offset - len(run), run.next_offset)
                )
        return offsets

    def take_during(self, seconds: float) -> list[FetchedMessages]:
        """All batches of this time."""
        batches = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            batches.append(self._consume_batch())
        return batches

    def _consume_batch(self) -> FetchedMessages:
        assert self.consumer.poll(0) is None, "a message came out of the consumer"
        self.queue.renew_forwarding()
        return self.queue.consume(100, 0.1)

    def close(self) -> None:
        """Queue first."""
        self.queue.close()
        self.consumer.close()


def fill_topic(
    clusters: Clusters, topic: str, partitions: int, records: Sequence[tuple[int, Record]]
) -> None:
    """A topic of the destination with these records, each with an origin behind its own headers."""
    clusters.destination.create(topic, partitions)
    offsets = [0] * partitions
    found = []
    for partition, record in records:
        origin = Origin(
            partition,
            offsets[partition],
            1_700_000_000_000 + offsets[partition],
            0,
            1,
            1,
            offsets[partition],
            IDENTITY,
        )
        offsets[partition] += 1
        found.append(
            (
                partition,
                Record(record.key, record.value, (*record.headers, (HEADER, encode(origin))), 0),
            )
        )
    clusters.destination.write(topic, found)
