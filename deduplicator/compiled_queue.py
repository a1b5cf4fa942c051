"""The queue with the fetched messages of the compiled path, and whether that path is used.

`compiled_path.c` does what `unwrap`, `rule` and `KafkaDestination.write` do, without a Python
object for each record. It is used if records go one to one to Kafka topics and no user's function
sees them, if the library was built (`make setup`, the wheel, the image), and if confluent-kafka has
a tested version (`compiled_library.VERSIONS`). Python does everything else, and decides unusual
batches; both give the same results (tests/unit/test_compiled.py, tests/broker/test_forwarding.py).

How it reaches librdkafka: in a client of confluent-kafka, the `rd_kafka_t *` is the first field
after Python's object head; the library is found through the extension module that has loaded it. A
separate queue receives the fetched messages (rd_kafka_queue_forward); the consumer's `poll` still
serves rebalances and errors.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterable
from functools import partial

from confluent_kafka import Consumer, KafkaError

from common import runtime
from common.kafka.client_errors import note_error
from common.routes import Route, TopicPartition
from common.settings import Settings, destination_kind
from deduplicator import compiled_library
from deduplicator.compiled_batch import FetchedMessages
from deduplicator.compiled_library import CompiledPathUnavailable, get_rd_kafka_pointer

RENEW_INTERVAL_S = 0.2
UNKNOWN_TOPIC = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)


def find_disabled_reason(settings: Settings, routes: Iterable[Route]) -> str | None:
    """The reason why the compiled path is not used for these routes; None when it is used."""
    if not settings.deduplicator.compiled:
        return "deduplicator.compiled is no"
    if settings.filter.function or settings.provenance.header:
        return "filter.function and provenance.header are applied in Python"
    if destination_kind.is_outside_kafka(settings):
        return "the destination is not a topic"
    if not all(route.is_one_to_one for route in routes):
        return "a route is not one to one"
    try:
        compiled_library.load_library()
    except CompiledPathUnavailable as reason:
        return str(reason)
    return None


def create_queue(settings: Settings, routes: Iterable[Route], consumer: Consumer) -> Queue | None:
    """A queue for this consumer, if the compiled path is used."""
    return (
        Queue(consumer, partial(note_error, settings.destination_cluster))
        if isinstance(consumer, Consumer) and find_disabled_reason(settings, routes) is None
        else None
    )


class Queue:
    """A librdkafka queue to which a consumer's partitions are forwarded. Close it before the
    consumer.
    """

    def __init__(
        self, consumer: Consumer, note_error: Callable[[KafkaError], None] = lambda _: None
    ) -> None:
        self.note_error = note_error
        self.library = compiled_library.load_library()
        self.consumer = consumer
        self.queue: int | None = self.library.rd_kafka.rd_kafka_queue_new(
            get_rd_kafka_pointer(consumer)
        )
        self.forwarded_partitions: frozenset[TopicPartition] = frozenset()
        self.renew_at = 0.0
        self.batches: weakref.WeakSet[FetchedMessages] = weakref.WeakSet()

    def forward_partitions(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Forward these partitions, and no others, to this queue. To be called before they are
        assigned; after that call `renew_forwarding` repeatedly.
        """
        self.forwarded_partitions, self.renew_at = frozenset(topic_partitions), 0.0
        self.renew_forwarding()

    def renew_forwarding(self) -> None:
        """Forward again, at intervals. When an assignment is replaced, librdkafka stops the
        fetching of the old one later, in a thread of its own, and then clears the forwarding
        (rd_kafka_toppar_fetch_stop), also that of the new one. It does not forward to the consumer
        again either: fetched messages stay in the partition's own queue, in order, until it is
        forwarded.
        """
        if runtime.monotonic() < self.renew_at:
            return
        self.renew_at = runtime.monotonic() + RENEW_INTERVAL_S
        for tp in self.forwarded_partitions:
            self._forward_partition(tp, self.queue)

    def _forward_partition(self, tp: TopicPartition, target_queue: int | None) -> None:
        rd_kafka = self.library.rd_kafka
        partition = rd_kafka.rd_kafka_queue_get_partition(
            get_rd_kafka_pointer(self.consumer), tp.topic.encode(), tp.partition
        )
        if partition is not None:
            rd_kafka.rd_kafka_queue_forward(partition, target_queue)
            rd_kafka.rd_kafka_queue_destroy(partition)

    def consume(self, records_max: int, wait_s: float) -> FetchedMessages:
        """At most `records_max` messages, after waiting for the first; empty when none came.

        That a topic is not known is noted, as where the consumer is polled: its group reports a
        topic that stays away.
        """
        fetched_messages = FetchedMessages(self.library)
        self.library.path.reo_take(
            self.queue, int(wait_s * 1000), records_max, ctypes.byref(fetched_messages.raw)
        )
        self.batches.add(fetched_messages)
        error = fetched_messages.error
        if error is not None and error.code() in UNKNOWN_TOPIC:
            self.note_error(error)
            fetched_messages.raw.error = 0
        return fetched_messages

    def close(self) -> None:
        """Destroy every message, and the queue."""
        for fetched_messages in list(self.batches):
            fetched_messages.release()
        for tp in self.forwarded_partitions:
            self._forward_partition(tp, None)
        if self.queue is not None:
            self.library.rd_kafka.rd_kafka_queue_destroy(self.queue)
            self.queue = None
