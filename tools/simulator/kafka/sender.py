"""A producer's records: the queue, the task that sends it, and the delivery reports, which wait for
the application's next poll or flush.

The task is a thread beside the application, like librdkafka's broker thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import KafkaError, Message

from tools.simulator.kafka.batch_sizes import BATCH_BYTES, record_bytes
from tools.simulator.kafka.errors import (
    BrokerError,
    ConnectionLost,
    RequestTimedOut,
    create_error,
    create_exception,
)
from tools.simulator.kafka.log_records import PLAIN, NewRecord, Writer
from tools.simulator.kafka.network import FOREVER_S
from tools.simulator.schedule import Signal

if TYPE_CHECKING:
    from tools.simulator.kafka.producer import Producer

PartitionKey = tuple[str, int]
NOT_SENT = -1001
CONCURRENT_RETRY_S, RETRY_S = 0.02, 0.1


class Queued(NamedTuple):
    """A record in the queue."""

    partition_key: PartitionKey
    record: NewRecord
    report: Callable[[Any, Any], object] | None
    deadline: float


class Sender:
    """The records of a producer that its application has given to it."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.schedule, self.cluster = producer.schedule, producer.cluster
        self.transactional_id = producer.options.get("transactional.id")
        self.is_idempotent = (
            producer.is_enabled("enable.idempotence") or self.transactional_id is not None
        )
        self.linger_s = producer.get_seconds("linger.ms", 5)
        self.message_timeout_s = producer.get_seconds("message.timeout.ms", 300_000)
        self.propagation_s = producer.get_seconds("topic.metadata.propagation.max.ms", 30_000)
        self.refresh_s = producer.get_seconds("topic.metadata.refresh.interval.ms", 300_000)
        self.queue_records_max = int(producer.get_number("queue.buffering.max.messages", 100_000))
        self.record_bytes_max = int(producer.get_number("message.max.bytes", 1_000_000))
        self.batch_bytes_max = int(producer.get_number("batch.size", 1_000_000))
        self.batch_records_max = int(producer.get_number("batch.num.messages", 10_000))
        self.queue: deque[Queued] = deque()
        self.in_flight = 0
        self.failures = 0
        """Records of the open transaction that were not delivered."""
        self.progress = Signal(self.schedule)
        self.is_sending = False
        self.is_flushing = False
        self.flush_requested = Signal(self.schedule)
        self.identity = (-1, -1)
        """Producer id and epoch."""
        self.sequences: dict[PartitionKey, int] = {}
        self.topic_partitions_cache: dict[str, tuple[int, float]] = {}
        """The number of partitions of each topic, and the time of that metadata."""

    def __len__(self) -> int:
        return len(self.queue) + self.in_flight + len(self.producer.pending_callbacks)

    def enqueue(
        self,
        partition_key: PartitionKey,
        record: NewRecord,
        report: Callable[[Any, Any], object] | None,
    ) -> None:
        """BufferError when the queue is full."""
        if record_bytes(record, 0, 0) > self.record_bytes_max:
            raise create_exception(
                KafkaError.MSG_SIZE_TOO_LARGE,
                "Unable to produce message: Broker: Message size too large",
            )
        if len(self) >= (self.cluster.producer_queue_records or self.queue_records_max):
            raise BufferError("Local: Queue full")
        topic, partition = partition_key
        count, asked_at = self.topic_partitions_cache.get(topic, (partition + 1, 0.0))
        if not 0 <= partition < count and self.schedule.now < asked_at + self.refresh_s:
            raise create_exception(
                KafkaError._UNKNOWN_PARTITION, "Unable to produce message: Local: Unknown partition"
            )
        self.queue.append(
            Queued(partition_key, record, report, self.schedule.now + self.message_timeout_s)
        )
        if not self.is_sending:
            self.is_sending = True
            self.producer.start(self._send_queue, f"sender of {self.producer.client_id}")

    def wait_until_sent(self, timeout_s: float) -> int:
        """Flush. Returns how many records and reports remain."""
        deadline = self.schedule.now + (timeout_s if timeout_s >= 0 else FOREVER_S)
        self.is_flushing = True
        self.flush_requested.notify()
        self.producer.run_callbacks()
        while len(self) and self.schedule.now < deadline:
            self.schedule.wait(self.progress, deadline - self.schedule.now)
            self.producer.run_callbacks()
        self.is_flushing = False
        return len(self)

    def _send_queue(self) -> None:
        """The task: send until the queue is empty."""
        try:
            while self.queue:
                if not self.is_flushing:
                    self.schedule.wait(self.flush_requested, self.linger_s)
                if not self.producer.transaction.may_send():
                    return
                batches = self._take_batches()
                if not self.producer.transaction.add_partitions(
                    list(dict.fromkeys(batch[0].partition_key for batch in batches))
                ):
                    for batch in batches:
                        self._report(batch, KafkaError._PURGE_QUEUE)
                    continue
                for batch in batches:
                    self._deliver(batch)
        finally:
            self.is_sending = False
            self.progress.notify()

    def _deliver(self, batch: list[Queued]) -> None:
        partition_key = batch[0].partition_key
        remaining_s = batch[0].deadline - self.schedule.now
        try:
            if not self.producer.transaction.may_send():
                self._report(batch, KafkaError._PURGE_QUEUE)
                return
            code = self.find_partition_error(partition_key, remaining_s)
            if code:
                self._report(batch, code)
                return
            if self.cluster.record_delay_s and self.transactional_id is not None:
                self.schedule.sleep(
                    min(len(batch) * self.cluster.record_delay_s, max(0.0, remaining_s))
                )
            offset, appended_ms = self._produce(
                partition_key, [queued.record for queued in batch], batch[0].deadline
            )
        except (RequestTimedOut, ConnectionLost):
            self.producer.transaction.on_error(
                KafkaError._TIMED_OUT,
                f"{len(batch)} message(s) timed out on {partition_key[0]} [{partition_key[1]}]",
            )
            self._report(batch, KafkaError._MSG_TIMED_OUT)
        except BrokerError as error:
            # leave a gap: the next batch is refused, until a new epoch
            if self.transactional_id is not None:
                self.sequences[partition_key] = self.sequences.get(partition_key, 0) + len(batch)
            self.producer.transaction.on_error(
                error.code,
                f"ProduceRequest for {partition_key[0]} [{partition_key[1]}] with {len(batch)}"
                f" message(s) failed: {KafkaError(error.code).str()} (broker 1): current"
                " transaction must be aborted",
            )
            is_retried = (
                error.code == KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
                and self.transactional_id is not None
            )
            self._report(batch, KafkaError._PURGE_QUEUE if is_retried else error.code)
        else:
            self._report(batch, 0, offset, appended_ms)

    def _produce(
        self, partition_key: PartitionKey, records: list[NewRecord], deadline: float
    ) -> tuple[int, int]:
        writer = PLAIN
        if self.is_idempotent:
            if self.identity[0] < 0:
                self.identity = (
                    self.producer.request(
                        "InitProducerId",
                        self.cluster.transactions.new_producer_id,
                        deadline - self.schedule.now,
                    ),
                    0,
                )
            writer = Writer(
                *self.identity,
                self.sequences.get(partition_key, 0),
                self.transactional_id is not None,
            )
        while True:
            try:
                answer = self.producer.request(
                    "Produce",
                    lambda: self.cluster.produce(
                        *partition_key, records, writer, self.transactional_id
                    ),
                    deadline - self.schedule.now,
                )
            except BrokerError as error:
                if error.code not in (
                    KafkaError.CONCURRENT_TRANSACTIONS,
                    KafkaError.UNKNOWN_TOPIC_OR_PART,
                ):
                    raise
                self.schedule.sleep(RETRY_S)
                if self.schedule.now >= deadline:
                    raise RequestTimedOut from None
                self.topic_partitions_cache.pop(partition_key[0], None)
                code = self.find_partition_error(partition_key, deadline - self.schedule.now)
                if code:
                    raise BrokerError(code) from None
            else:
                if self.is_idempotent:
                    self.sequences[partition_key] = writer.sequence + len(records)
                return answer

    def find_partition_error(self, partition_key: PartitionKey, remaining_s: float) -> int:
        """The error code when the partition cannot be written; 0 when it exists."""
        topic, partition = partition_key
        deadline = self.schedule.now + min(remaining_s, self.propagation_s)
        count, asked_at = self.topic_partitions_cache.get(topic, (-1, 0.0))
        if count > partition and self.schedule.now < asked_at + self.refresh_s:
            return 0
        while True:
            count = self.producer.request(
                "Metadata",
                lambda: (
                    len(self.cluster.topics[topic].logs) if topic in self.cluster.topics else -1
                ),
                remaining_s,
            )
            if count > 0:
                self.topic_partitions_cache[topic] = count, self.schedule.now
                return 0 if partition < count else int(KafkaError._UNKNOWN_PARTITION)
            if self.schedule.now >= deadline:
                return int(KafkaError.UNKNOWN_TOPIC_OR_PART)
            self.schedule.sleep(min(0.25, deadline - self.schedule.now))

    def _take_batches(self) -> list[list[Queued]]:
        """Take all queued records, as batches by partition, none larger than the limits."""
        batches_by_partition: dict[PartitionKey, list[list[Queued]]] = {}
        sizes: dict[PartitionKey, int] = {}
        self.in_flight += len(self.queue)
        while self.queue:
            queued = self.queue.popleft()
            size = record_bytes(queued.record, 0, 0) + 8
            batches = batches_by_partition.setdefault(queued.partition_key, [])
            total = sizes.get(queued.partition_key, 0) + size
            if (
                not batches
                or total > self.batch_bytes_max
                or len(batches[-1]) >= self.batch_records_max
            ):
                batches.append([])
                total = BATCH_BYTES + size
            batches[-1].append(queued)
            sizes[queued.partition_key] = total
        return [batch for batches in batches_by_partition.values() for batch in batches]

    def _report(
        self, batch: list[Queued], code: int, offset: int = NOT_SENT, appended_ms: int = -1
    ) -> None:
        """Queue delivery reports for the application's next poll."""
        self.in_flight -= len(batch)
        self.failures += len(batch) if code else 0
        for number, queued in enumerate(batch):
            if queued.report:
                self.producer.pending_callbacks.append(
                    self._create_report(
                        queued, code, offset + number if not code else NOT_SENT, appended_ms
                    )
                )
        self.progress.notify()

    @staticmethod
    def _create_report(
        queued: Queued, code: int, offset: int, appended_ms: int
    ) -> Callable[[], object]:
        record, report = queued.record, queued.report
        headers: Any = record.headers
        assert report is not None
        error = create_error(code) if code else None
        timestamp = (2, appended_ms) if appended_ms >= 0 else (1, record.timestamp_ms)
        return lambda: report(
            error,
            Message(
                *queued.partition_key, offset, record.key, record.value, headers, error, timestamp
            ),
        )

    def drop_queue(self) -> None:
        """Purge the records that are not sent yet."""
        batch = list(self.queue)
        self.queue.clear()
        self.in_flight += len(batch)
        self._report(batch, KafkaError._PURGE_QUEUE)
