"""What sends a producer's queue: partitions, sequences, errors. Transactions are in `producer`.

A task of its own sends the queue, like librdkafka's broker thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError

from tools.simulator.kafka.batch_sizes import record_bytes
from tools.simulator.kafka.errors import (
    BrokerError,
    ConnectionLost,
    RequestTimedOut,
    create_exception,
)
from tools.simulator.kafka.log_records import PLAIN, NewRecord, Writer
from tools.simulator.kafka.network import FOREVER_S
from tools.simulator.kafka.record_queue import PartitionKey, Queued, RecordQueue
from tools.simulator.schedule import Signal

CONCURRENT_RETRY_S, RETRY_S = 0.02, 0.1


class Sender(RecordQueue):
    """The part of a producer that sends."""

    def __init__(self, network: Any, options: Any) -> None:
        super().__init__(network, options)
        self.is_idempotent = (
            self.is_enabled("enable.idempotence") or "transactional.id" in self.options
        )
        self.linger_s = self.get_seconds("linger.ms", 5)
        self.message_timeout_s = self.get_seconds("message.timeout.ms", 300_000)
        self.propagation_s = self.get_seconds("topic.metadata.propagation.max.ms", 30_000)
        self.refresh_s = self.get_seconds("topic.metadata.refresh.interval.ms", 300_000)
        self.queue_records_max = int(self.get_number("queue.buffering.max.messages", 100_000))
        self.record_bytes_max = int(self.get_number("message.max.bytes", 1_000_000))
        self.is_sending = False
        self.flush_requested = Signal(self.schedule)
        self.identity = (-1, -1)
        """Producer id and epoch."""
        self.sequences: dict[PartitionKey, int] = {}
        self.topic_partitions_cache: dict[str, tuple[int, float]] = {}
        """The number of partitions of each topic, and the time of that metadata."""
        self.is_flushing = False

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
            self.start(self._send_queue, f"sender of {self.client_id}")

    def may_send(self) -> bool:
        """Whether queued records may be sent now."""
        return True

    def prepare_partitions(self, partition_keys: list[PartitionKey]) -> bool:  # noqa: ARG002
        """Called before records are sent to these partitions. Returns whether they may be sent."""
        return True

    def on_error(self, code: int, text: str) -> None:
        """Called when a batch failed for good."""

    def wait_until_sent(self, timeout_s: float) -> int:
        """Flush. Returns how many records and reports remain."""
        deadline = self.schedule.now + (timeout_s if timeout_s >= 0 else FOREVER_S)
        self.is_flushing = True
        self.flush_requested.notify()
        self.run_callbacks()
        while len(self) and self.schedule.now < deadline:
            self.schedule.wait(self.progress, deadline - self.schedule.now)
            self.run_callbacks()
        self.is_flushing = False
        return len(self)

    def _send_queue(self) -> None:
        """The task: send until the queue is empty."""
        try:
            while self.queue:
                if not self.is_flushing:
                    self.schedule.wait(self.flush_requested, self.linger_s)
                if not self.may_send():
                    return
                batches = self.take_batches()
                if not self.prepare_partitions(
                    list(dict.fromkeys(batch[0].partition_key for batch in batches))
                ):
                    for batch in batches:
                        self.report(batch, KafkaError._PURGE_QUEUE)
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
            if not self.may_send():
                self.report(batch, KafkaError._PURGE_QUEUE)
                return
            code = self.find_partition_error(partition_key, remaining_s)
            if code:
                self.report(batch, code)
                return
            if self.cluster.record_delay_s and "transactional.id" in self.options:
                self.schedule.sleep(
                    min(len(batch) * self.cluster.record_delay_s, max(0.0, remaining_s))
                )
            offset, appended_ms = self._produce(
                partition_key, [queued.record for queued in batch], batch[0].deadline
            )
        except (RequestTimedOut, ConnectionLost):
            self.on_error(
                KafkaError._TIMED_OUT,
                f"{len(batch)} message(s) timed out on {partition_key[0]} [{partition_key[1]}]",
            )
            self.report(batch, KafkaError._MSG_TIMED_OUT)
        except BrokerError as error:
            # leave a gap: the next batch is refused, until a new epoch
            if "transactional.id" in self.options:
                self.sequences[partition_key] = self.sequences.get(partition_key, 0) + len(batch)
            self.on_error(
                error.code,
                f"ProduceRequest for {partition_key[0]} [{partition_key[1]}] with {len(batch)}"
                f" message(s) failed: {KafkaError(error.code).str()} (broker 1): current"
                " transaction must be aborted",
            )
            is_retried = (
                error.code == KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
                and "transactional.id" in self.options
            )
            self.report(batch, KafkaError._PURGE_QUEUE if is_retried else error.code)
        else:
            self.report(batch, 0, offset, appended_ms)

    def _produce(
        self, partition_key: PartitionKey, records: list[NewRecord], deadline: float
    ) -> tuple[int, int]:
        writer = PLAIN
        if self.is_idempotent:
            if self.identity[0] < 0:
                self.identity = (
                    self.request(
                        "InitProducerId",
                        self.cluster.transactions.new_producer_id,
                        deadline - self.schedule.now,
                    ),
                    0,
                )
            writer = Writer(
                *self.identity,
                self.sequences.get(partition_key, 0),
                "transactional.id" in self.options,
            )
        transactional_id = self.options.get("transactional.id")
        while True:
            try:
                answer = self.request(
                    "Produce",
                    lambda: self.cluster.produce(*partition_key, records, writer, transactional_id),
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
            count = self.request(
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
