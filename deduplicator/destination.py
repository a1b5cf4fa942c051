"""The destination: where accepted records go, in the same transaction as the frontier.

`Destination` is all that the loop knows. `KafkaDestination` writes to a topic; it also keeps, per partition, what the check at
the next start needs (`Output`): the offset of the last record whose delivery is known and how many were sent after it.
Delivery reports are asked for one record per partition and transaction, the last. A commit waits for them anyway, so they are looked at just before it:
a partition that gives a record an offset which it must have given before has lost records, and nothing more is committed to it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from confluent_kafka import KafkaException, Producer, TopicPartition

from common import points
from common.errors import DestinationTruncated, StageFailed
from common.metrics import QUEUE_FULL
from common.routes import Place, Route
from deduplicator.compiled import CompiledRecords
from deduplicator.destination_watch import DestinationWatch
from deduplicator.transaction import ProducerPair
from deduplicator.unwrap import Record


@dataclass(slots=True)
class Output:
    """Where a destination partition stands: every visible record after offset `known_offset` is one of `sent`."""

    known_offset: int
    sent: int

    @property
    def last_offset(self) -> int:
        """The least offset that the last of these records can have: each has one of its own, and markers lie between."""
        return self.known_offset + self.sent


UNCOUNTED = Output(-1, -1)
"""Of a route that is not one to one: others write to the partition too, so counting says nothing."""


class Destination(Protocol):
    """A transaction at a time: begin, write, commit; `abort` after a failure of the caller's own."""

    outputs: dict[Place, Output]
    """Of the partitions that are written by one route alone."""

    def begin(self) -> None:
        """Open a transaction."""

    def write(self, place: Place, records: Sequence[Record], source_offsets: Sequence[int]) -> None:
        """Write records in order to one partition, in the open transaction. Their source offsets are given by a route that is one to one."""

    def commit(self, offsets: Callable[[], Sequence[TopicPartition]], member: Any) -> None:
        """Commit the records together with the offsets and their metadata, which are asked for last."""

    def abort(self) -> None:
        """Undo the open transaction."""

    def resolve_in_doubt(self) -> None:
        """Have everything decided that a failure, or a predecessor, left in doubt, before the frontier is read. Waits as long as the destination is silent."""

    def check_for_loss(self, topic_ids: Mapping[str, str]) -> None:
        """Once a second, between two transactions: DestinationTruncated when what was written is seen to be gone. Waits for nothing.

        `topic_ids` are those that the frontiers speak of, by destination topic.
        """

    def is_answering(self) -> bool:
        """Whether its server has answered lately, as far as that is not seen on the intermediate topics."""

    def add_routes(self, routes: Collection[Route]) -> None:
        """Routes that have come; StageFailed when what was made for the others does not fit them."""

    def close(self) -> None:
        """Leave no transaction open."""


class KafkaDestination:
    """Records go to a partition of a topic, with their own timestamp."""

    def __init__(self, producers: ProducerPair, watcher: DestinationWatch, batches_fit: Callable[[Collection[Route]], bool] = lambda _: True) -> None:
        self.producers = producers
        self.watcher = watcher
        self.batches_fit = batches_fit
        """Whether the producers' batches are small enough for the destination topics of these routes."""
        self.outputs: dict[Place, Output] = {}
        self._client: Producer | None = None
        self._delivered: dict[Place, int] = {}

    def begin(self) -> None:
        """Open a transaction of the producer whose turn it is."""
        self._delivered = {}
        self._client = self.producers.begin()

    def write(self, place: Place, records: Sequence[Record], source_offsets: Sequence[int]) -> None:  # noqa: ARG002  (an offset of its own counts them)
        """Hand records to the client; `TransactionFailed`, or a typed Stop, when it refuses one."""
        client = self._client
        assert client is not None
        self.producers.current.check_deadline(f"writing to {place}")
        produce, (topic, partition) = client.produce, place
        output = self.outputs.get(place)
        last = records[-1]
        try:
            if isinstance(records, CompiledRecords):
                self._forward(place, records, len(records) - 1)
                most: Iterable[Record] = ()
            else:
                most = islice(records, len(records) - 1)
            for key, value, headers, timestamp_ms in most:
                try:
                    produce(topic, value, key, partition, None, None, timestamp_ms, headers)  # type: ignore[arg-type]  # by position: faster than by name
                except BufferError:
                    self._produce_with_retry(place, (key, value, headers, timestamp_ms), None)
            self._produce_with_retry(place, last, self._on_delivery if output else None)
        except KafkaException as failed:
            raise self.producers.current.handle_failure(failed, f"writing to {place}") from None
        if output:
            output.sent += len(records)

    def _forward(self, place: Place, records: CompiledRecords, count: int) -> None:
        """Hand the first records to the client in C."""
        assert self._client is not None
        done = 0
        while (done := done + records.forward(self._client, place, done, count)) < count:
            self._wait_for_queue(place)

    def _wait_for_queue(self, place: Place) -> None:
        """The client's queue is full."""
        assert self._client is not None
        QUEUE_FULL.inc()
        self._client.poll(0.05)
        self.producers.current.check_deadline(f"writing to {place}")

    def _produce_with_retry(self, place: Place, record: Record, on_delivery: Callable[[object, Any], None] | None) -> None:
        """While the client's queue is full, let it send."""
        assert self._client is not None
        key, value, headers, timestamp_ms = record
        while True:
            try:
                # the callback has two places, and the second one is passed over when the first is given, be it None (confluent-kafka 2.16)
                self._client.produce(place.topic, value, key, place.partition, on_delivery, None, timestamp_ms, headers)  # type: ignore[arg-type]
            except BufferError:
                self._wait_for_queue(place)
            else:
                return

    def commit(self, offsets: Callable[[], Sequence[TopicPartition]], member: Any) -> None:
        """Offsets last, then EndTxn, when all is delivered to where it has to be."""
        producer = self.producers.current
        producer.send_offsets(offsets(), member)
        points.at("two: offsets sent")
        producer.flush()
        for place, offset in self._delivered.items():
            check_delivered_offset(place, self.outputs[place], offset)
        points.soon_after("two: committing")
        producer.commit()
        for place, known in self._delivered.items():
            self.outputs[place] = Output(known, 0)

    def abort(self) -> None:
        """Abort, or throw the producer away when the abort is in doubt."""
        producer = self.producers.current
        if not producer.abort():
            producer.discard()

    def resolve_in_doubt(self) -> None:
        """Initialise what was thrown away: until then its transaction may be open, and holds readers of the topic back."""
        self.producers.initialise()

    def check_for_loss(self, topic_ids: Mapping[str, str]) -> None:
        """Ids of the topics, and ends of the partitions that are this copy's alone."""
        self.watcher.poll(topic_ids, {place: output.last_offset for place, output in self.outputs.items() if output != UNCOUNTED})

    def is_answering(self) -> bool:
        """It is the intermediate topics' cluster."""
        return True

    def add_routes(self, routes: Collection[Route]) -> None:
        """Batches are made for the least of the topics' limits."""
        if not self.batches_fit(routes):
            raise StageFailed(f"one of {[route.destination_topic for route in routes]} takes smaller batches than this worker's producers make: starting again")

    def close(self) -> None:
        """Abort what is open."""
        self.producers.close()

    def _on_delivery(self, error: object, message: Any) -> None:
        if error is None and message.offset() >= 0:
            self._delivered[Place(message.topic(), message.partition())] = message.offset()


def check_delivered_offset(place: Place, output: Output, offset: int) -> None:
    """DestinationTruncated when the last record of the open transaction, which `output` counts, was given an offset that it cannot have.

    Offsets of a partition only grow. Where it lost what was written (an unclean election, a restored disk, a topic that was recreated), they are
    given once more: `known_offset` would be another record's then, and the next start would find nothing wrong.
    """
    if offset < output.last_offset:
        raise DestinationTruncated(f"{place} lost records while it was copied to: {output.sent} were written after offset {output.known_offset}, and the last "
                                   f"of them was given offset {offset}. This transaction is undone. Copy to a new topic, or restore this one")


def offsets_with_metadata(positions: Mapping[Place, tuple[int, str]]) -> list[TopicPartition]:
    """What `send_offsets_to_transaction` takes: per partition the next offset and the frontier's metadata string."""
    return [TopicPartition(*place, offset, metadata) for place, (offset, metadata) in positions.items()]
