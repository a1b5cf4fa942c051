"""The destination: where accepted records go, in the same transaction as the frontier.

`Destination` is the only interface that the loop uses. `KafkaDestination` writes to a topic; it
also keeps, per partition, what the check at the next start needs (`DestinationState`): the offset
of the last record whose delivery is known, and how many records were sent after it. It requests a
delivery report for one record per partition and transaction, the last. A commit waits for the
reports anyway, so they are checked just before it: a partition that gives a record an offset which
it must have given before has lost records, and nothing more is committed to it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from confluent_kafka import KafkaException, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition

from common import failpoints
from common.errors import DestinationTruncated, StageFailed
from common.metrics import QUEUE_FULL
from common.routes import Route, TopicPartition
from deduplicator.compiled_batch import CompiledRecords
from deduplicator.destination_watch import DestinationWatch
from deduplicator.transactions.producer_pair import ProducerPair
from deduplicator.unwrap import Record


@dataclass(slots=True)
class DestinationState:
    """The state of a destination partition: the visible records after `known_offset` are exactly
    the `sent` ones.
    """

    known_offset: int
    sent: int
    is_known_written: bool = False
    """Whether the record at `known_offset` is one of this copy."""

    @property
    def last_offset(self) -> int:
        """The lowest offset that the last of these records can have: each has its own, and
        transaction markers have offsets too.
        """
        return self.known_offset + self.sent


GetOffsets = Callable[[], Sequence[ClientTopicPartition]]
"""Returns the offsets to commit, with their metadata."""
UNCOUNTED = DestinationState(-1, -1)
"""For a route that is not one to one: other routes write to the partition too, so a count proves
nothing.
"""


class Destination(Protocol):
    """One transaction after the other: begin, write, send_offsets, start_commit, finish_commit;
    `abort` after a failure of the caller.

    The next one may be filled, and its offsets sent, while a commit is not finished; its commit is
    started when the one before it is finished.
    """

    outputs: dict[TopicPartition, DestinationState]
    """Of the partitions that one route alone writes."""

    def begin(self) -> None:
        """Open a transaction."""

    def write(
        self, tp: TopicPartition, records: Sequence[Record], source_offsets: Sequence[int]
    ) -> None:
        """Write records in order to one partition, in the open transaction. A route that is one to
        one passes their source offsets.
        """

    def send_offsets(self, offsets: GetOffsets, member: Any) -> None:
        """Put the offsets and their metadata into the transaction, whose records are written;
        `offsets` is called last.
        """

    def start_commit(self) -> None:
        """Commit the transaction whose offsets are sent; the answer may come later."""

    def finish_commit(self) -> None:
        """Wait until the commit that was started is known to be done; TransactionFailed when it
        failed, or is in doubt. Nothing if none was started.
        """

    def abort(self) -> None:
        """Abort the open transaction, if there is one; not a commit that was started."""

    def resolve_in_doubt(self) -> None:
        """Before the frontier is read: resolve what a failure or a predecessor left in doubt. Waits
        while the destination does not answer.
        """

    def check_for_loss(self, topic_ids: Mapping[str, str]) -> None:
        """Once a second, between two transactions: DestinationTruncated when written records are
        found to be lost. Does not block.

        `topic_ids` are the ids in the frontiers, by destination topic.
        """

    def is_answering(self) -> bool:
        """Whether its server has answered lately, if it is not the cluster of the intermediate
        topics.
        """

    def add_routes(self, routes: Collection[Route]) -> None:
        """Routes that were added; StageFailed when the producers do not fit them."""

    def close(self) -> None:
        """Leave no transaction open."""


class KafkaDestination:
    """Writes records to a partition of a topic, with their own timestamps."""

    def __init__(
        self,
        producers: ProducerPair,
        watcher: DestinationWatch,
        batches_fit: Callable[[Collection[Route]], bool] = lambda _: True,
    ) -> None:
        self.producers = producers
        self.watcher = watcher
        self.batches_fit = batches_fit
        """Whether the producers' batches fit the destination topics of some routes."""
        self.outputs: dict[TopicPartition, DestinationState] = {}
        self._client: Producer | None = None
        self._delivered: dict[TopicPartition, int] = {}
        self._not_empty: set[TopicPartition] = set()  # this process has delivered records there
        self._written: set[TopicPartition] = set()  # in the open transaction

    def begin(self) -> None:
        """Open a transaction of the next producer."""
        self._delivered, self._written = {}, set()
        self._client = self.producers.begin()

    def write(
        self,
        tp: TopicPartition,
        records: Sequence[Record],
        # a topic gives offsets of its own
        source_offsets: Sequence[int],  # noqa: ARG002
    ) -> None:
        """Pass records to the client; `TransactionFailed`, or a typed Stop, when it refuses one."""
        client = self._client
        assert client is not None
        self.producers.current.check_deadline(f"writing to {tp}")
        produce, (topic, partition) = client.produce, tp
        output = self.outputs.get(tp)
        last = records[-1]
        try:
            if isinstance(records, CompiledRecords):
                self._forward(tp, records, len(records) - 1)
                but_last: Iterable[Record] = ()
            else:
                but_last = islice(records, len(records) - 1)
            for key, value, headers, timestamp_ms in but_last:
                try:
                    # by position: faster than by name
                    produce(topic, value, key, partition, None, None, timestamp_ms, headers)  # type: ignore[arg-type]
                except BufferError:
                    self._produce_with_retry(tp, (key, value, headers, timestamp_ms), None)
            self._produce_with_retry(tp, last, self._on_delivery if output else None)
        except KafkaException as failed:
            raise self.producers.current.handle_failure(failed, f"writing to {tp}") from None
        self._written.add(tp)
        if output:
            output.sent += len(records)

    def _forward(self, tp: TopicPartition, records: CompiledRecords, count: int) -> None:
        """Pass the first records to the client in C."""
        assert self._client is not None
        forwarded = 0
        while (
            forwarded := forwarded + records.forward(self._client, tp, forwarded, count)
        ) < count:
            self._wait_for_queue(tp)

    def _wait_for_queue(self, tp: TopicPartition) -> None:
        """The client's queue is full: let it send for a while."""
        assert self._client is not None
        QUEUE_FULL.inc()
        self._client.poll(0.05)
        self.producers.current.check_deadline(f"writing to {tp}")

    def _produce_with_retry(
        self, tp: TopicPartition, record: Record, on_delivery: Callable[[object, Any], None] | None
    ) -> None:
        """Retry while the client's queue is full."""
        assert self._client is not None
        key, value, headers, timestamp_ms = record
        while True:
            try:
                # there are two callback arguments, and the second is ignored when the first is
                # passed, even as None (confluent-kafka 2.16)
                self._client.produce(
                    tp.topic,
                    value,
                    key,
                    tp.partition,
                    on_delivery,
                    None,
                    timestamp_ms,
                    headers,  # type: ignore[arg-type]
                )
            except BufferError:
                self._wait_for_queue(tp)
            else:
                return

    def send_offsets(self, offsets: GetOffsets, member: Any) -> None:
        """Send the offsets; DestinationTruncated when a record was delivered at an offset that is
        not possible.

        The first records of a partition are delivered before. Where the offsets of an open
        transaction are deleted (with their topic, or their group), a successor finds nothing to
        wait for: only a partition that is not empty keeps it from beginning the copy again.
        """
        producer = self.producers.current
        if not self._written <= self._not_empty:
            producer.flush()
            self._not_empty |= self._written
        producer.send_offsets(offsets(), member)
        failpoints.hit("two: offsets sent")
        producer.flush()
        for tp, offset in self._delivered.items():
            check_delivered_offset(tp, self.outputs[tp], offset)
            self.outputs[tp] = DestinationState(offset, 0, is_known_written=True)

    def start_commit(self) -> None:
        """Send EndTxn."""
        failpoints.hit_soon("two: committing")
        self.producers.start_commit()

    def finish_commit(self) -> None:
        """Wait for the answer to EndTxn."""
        self.producers.finish_commit()

    def abort(self) -> None:
        """Abort, or discard the producer when the abort is in doubt."""
        producer = self.producers.current
        self._not_empty -= self._written  # a record that was refused is not there
        if producer.state != "committing" and not producer.abort():
            producer.discard()

    def resolve_in_doubt(self) -> None:
        """Initialise the discarded producers: until then their transactions may be open, and
        readers of the topic wait for them.
        """
        self.producers.initialise()

    def check_for_loss(self, topic_ids: Mapping[str, str]) -> None:
        """Check the ids of the topics, and the end offsets of the partitions that this copy alone
        writes.
        """
        counted = {tp: output for tp, output in self.outputs.items() if output != UNCOUNTED}
        self.watcher.poll(topic_ids, {tp: output.last_offset for tp, output in counted.items()})

    def is_answering(self) -> bool:
        """It is the cluster of the intermediate topics."""
        return True

    def add_routes(self, routes: Collection[Route]) -> None:
        """The producers' batches fit the smallest limit of the topics at the start."""
        if not self.batches_fit(routes):
            topics = [route.destination_topic for route in routes]
            raise StageFailed(
                f"one of the topics {topics} accepts only smaller batches than this worker's"
                " producers send: starting again"
            )

    def close(self) -> None:
        """Abort an open transaction."""
        self.producers.close()

    def _on_delivery(self, error: object, message: Any) -> None:
        if error is None and message.offset() >= 0:
            self._delivered[TopicPartition(message.topic(), message.partition())] = message.offset()


def check_delivered_offset(tp: TopicPartition, output: DestinationState, offset: int) -> None:
    """DestinationTruncated when the last record of the open transaction, which `output` counts, was
    given an offset that it cannot have.

    Offsets of a partition only grow. If the partition lost records (an unclean leader election, a
    restored disk, a recreated topic), it gives their offsets again: then `known_offset` would be
    another record's, and the next start would find nothing wrong.
    """
    if offset < output.last_offset:
        raise DestinationTruncated(
            f"{tp} lost records while it was copied to: {output.sent} were written after offset"
            f" {output.known_offset}, and the last of them was given offset {offset}. This"
            " transaction is aborted. Copy to a new topic, or restore this one"
        )
