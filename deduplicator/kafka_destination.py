"""A topic as the destination.

It requests a delivery report for one record per partition and transaction, the last: its offset,
and how many records were sent after it, are what the check at the next start needs (`Output`). A
commit waits for the reports anyway, so they are checked just before it: a partition that gives a
record an offset which it must have given before has lost records (`Partition.on_delivered`), and
nothing more is committed to it; nor is a transaction whose records have another timestamp.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition

from common import failpoints
from common.envelope import OFFSET_MAX, EnvelopeInvalid
from common.errors import ClusterUnreachable, StageFailed, TopicsUnfit
from common.kafka import copied_configs, topic_fitness
from common.kafka.copied_configs import Entries
from common.kafka.intermediate_records import build_foreign_record_error
from common.metrics import QUEUE_FULL
from common.routes import Route, TopicPartition
from deduplicator import compiled_path
from deduplicator.destination import Output
from deduplicator.destination_watch import DestinationWatch
from deduplicator.transactions.producer_pair import ProducerPair
from deduplicator.transactions.transaction_failures import TransactionFailed
from deduplicator.unwrap import AcceptedEnvelope, Record, find_last_record, unwrap

BATCH_BYTES_MAX = 1_048_588
"""A topic's default max.message.bytes, used while there is no topic."""


class KafkaDestination:
    """Writes records to a partition of a topic, with their own timestamps."""

    def __init__(
        self,
        producers: ProducerPair,
        watcher: DestinationWatch,
        describe_config: Callable[[str], Entries],
        batch_bytes_max: int = BATCH_BYTES_MAX,
        is_compiled: bool = False,
    ) -> None:
        self.producers = producers
        self.is_compiled = is_compiled
        """Whether `deduplicator.compiled_path` can be used."""
        self.watcher = watcher
        self.describe_config = describe_config
        """The configuration of a destination topic as it is now."""
        self.batch_bytes_max = batch_bytes_max
        """The smallest max.message.bytes for which the producers were made."""
        self._client: Producer | None = None
        self._delivered: dict[TopicPartition, int] = {}
        self._stamped: set[TopicPartition] = set()  # by a broker, with its time
        self._not_empty: set[TopicPartition] = set()  # this process has delivered records there
        self._written: set[TopicPartition] = set()  # in the open transaction

    def begin(self) -> None:
        """Open a transaction of the next producer."""
        self._delivered, self._written, self._stamped = {}, set(), set()
        self._client = self.producers.begin()

    def write(
        self,
        tp: TopicPartition,
        records: Sequence[Record],
        # a topic gives offsets of its own
        source: TopicPartition,  # noqa: ARG002
        source_offsets: Sequence[int],  # noqa: ARG002
        output: Output,
    ) -> Output:
        """Pass records to the client; `TransactionFailed`, or a typed Stop, when it refuses one."""
        client = self._client
        assert client is not None
        self.producers.current.check_deadline(f"writing to {tp}")
        produce, (topic, partition) = client.produce, tp
        try:
            for key, value, headers, timestamp_ms in islice(records, len(records) - 1):
                try:
                    # by position: faster than by name
                    produce(topic, value, key, partition, None, None, timestamp_ms, headers)  # type: ignore[arg-type]
                except BufferError:
                    self.write_record(tp, (key, value, headers, timestamp_ms), None)
            self.write_record(tp, records[-1], self._on_delivery)
        except KafkaException as failed:
            raise self.producers.current.handle_failure(failed, f"writing to {tp}") from None
        self._written.add(tp)
        return output._replace(sent=output.sent + len(records))

    @property
    def can_forward(self) -> bool:
        """Where the C function is built, and the producer is librdkafka's own."""
        return self.is_compiled and isinstance(self.producers.current.client, Producer)

    def forward(
        self,
        tp: TopicPartition,
        envelopes: Sequence[AcceptedEnvelope],
        zero_timestamp_ms: int | None,
    ) -> int:
        """Pass the new records to the client in C, but the last one, whose delivery report says
        where the partition ends; errors as in `write`, and ForeignRecord for a damaged envelope.
        """
        self.producers.current.check_deadline(f"writing to {tp}")
        last = find_last_record(envelopes)
        count = 0
        try:
            for envelope in envelopes:
                below = last[1].source_offset if last and envelope is last[0] else OFFSET_MAX
                count += self._forward_envelope(tp, envelope, below, zero_timestamp_ms)
            if last is not None:
                self.write_record(tp, unwrap(*last, zero_timestamp_ms), self._on_delivery)
                count += 1
        except KafkaException as failed:
            raise self.producers.current.handle_failure(failed, f"writing to {tp}") from None
        if count:
            self._written.add(tp)
        return count

    def _forward_envelope(
        self,
        tp: TopicPartition,
        envelope: AcceptedEnvelope,
        below: int,
        zero_timestamp_ms: int | None,
    ) -> int:
        """The new records with source offsets below this one; how many these are."""
        assert self._client is not None
        self.producers.current.envelopes.append(envelope.value)
        count, above = 0, envelope.above
        while True:
            try:
                forwarded = compiled_path.forward(
                    self._client, tp, envelope.value, above, below, zero_timestamp_ms
                )
            except EnvelopeInvalid as reason:
                raise build_foreign_record_error(envelope.message, str(reason)) from None
            count += forwarded.count
            if not forwarded.is_queue_full:
                return count
            above = forwarded.last_source_offset
            self._wait_for_queue(tp)

    def _wait_for_queue(self, tp: TopicPartition) -> None:
        """The client's queue is full: let it send for a while."""
        assert self._client is not None
        QUEUE_FULL.inc()
        self._client.poll(0.05)
        self.producers.current.check_deadline(f"writing to {tp}")

    def write_record(
        self, tp: TopicPartition, record: Record, on_delivery: Callable[[object, Any], None] | None
    ) -> None:
        """Pass a record to the client, again while its queue is full; None: without a report."""
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

    def send_offsets(
        self, offsets: Sequence[ClientTopicPartition], member: Any
    ) -> Mapping[TopicPartition, int]:
        """Send the offsets; TopicsUnfit or TransactionFailed when a record may have another
        timestamp.

        The first records of a partition are delivered before. Where the offsets of an open
        transaction are deleted (with their topic, or their group), a successor finds nothing to
        wait for: only a partition that is not empty keeps it from beginning the copy again.
        """
        producer = self.producers.current
        if not self._written <= self._not_empty:
            producer.flush()
            self._not_empty |= self._written
        producer.send_offsets(offsets, member)
        failpoints.hit("two: offsets sent")
        producer.flush()
        self._check_timestamps()
        return self._delivered

    def _check_timestamps(self) -> None:
        """TopicsUnfit when the records of this transaction have other timestamps; TransactionFailed
        when that is not certain. Brokers also report a timestamp of theirs for a batch that came
        twice (`UnifiedLog.append`), and a configuration can have been changed back.
        """
        if not self._stamped:
            return
        with suppress(ClusterUnreachable):
            for name in sorted({tp.topic for tp in self._stamped}):
                unfit = topic_fitness.find_replaced_timestamps(name, self.describe_config(name))
                if unfit is not None:
                    raise TopicsUnfit(
                        f"{unfit}, then start again. This transaction is aborted: every record that"
                        " is committed has its own timestamp",
                        topic=name,
                    )
        raise TransactionFailed("brokers may have replaced the timestamps of its records")

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
        """Initialise the discarded producers: their transactions may be open until then."""
        self.producers.initialise()

    def check_for_loss(
        self, topic_ids: Mapping[str, str], last_offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Check the topics' ids, and the ends of partitions that this copy alone writes."""
        self.watcher.poll(topic_ids, last_offsets)

    def is_answering(self) -> bool:
        """It is the cluster of the intermediate topics."""
        return True

    def check_batches(self, routes: Collection[Route]) -> None:
        """The producers' batches fit the smallest limit of the topics at the start."""
        for name in sorted({route.destination_topic for route in routes}):
            limit = copied_configs.get_max_message_bytes(self.describe_config(name))
            if limit < self.batch_bytes_max:
                raise StageFailed(
                    f"the topic {name} takes batches of up to {limit} bytes, and this worker's"
                    f" producers were made for {self.batch_bytes_max}: starting again"
                )

    def close(self) -> None:
        """Abort an open transaction."""
        self.producers.close()

    def _on_delivery(self, error: object, message: Any) -> None:
        if error is not None or message.offset() < 0:
            return
        tp = TopicPartition(message.topic(), message.partition())
        self._delivered[tp] = message.offset()
        if message.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME:
            self._stamped.add(tp)
