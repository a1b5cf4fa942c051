"""A producer's queue and what becomes of its records: batches, sequences, delivery reports. Transactions are in `producer`.

A task of its own sends while there is something to send, as librdkafka's broker thread does; reports wait for the application's next poll or flush.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, Message

from simulator.kafka.client import Client
from simulator.kafka.errors import BrokerError, ConnectionLost, RequestTimedOut, create_error, create_exception
from simulator.kafka.log import PLAIN, NewRecord, Writer
from simulator.kafka.network import FOREVER_S
from simulator.kafka.sizes import BATCH_BYTES, record_bytes
from simulator.schedule import Signal

PartitionKey = tuple[str, int]
CONCURRENT_S, AGAIN_S = 0.02, 0.1
NOT_SENT = -1001


class Queued(NamedTuple):
    """A record on its way."""

    place: PartitionKey
    record: NewRecord
    report: Callable[[Any, Any], object] | None
    deadline: float


class Sender(Client):
    """The part of a producer that sends."""

    def __init__(self, network: Any, options: Any) -> None:
        super().__init__(network, options)
        self.is_idempotent = self.is_set("enable.idempotence") or "transactional.id" in self.options
        self.linger_s = self.seconds("linger.ms", 5)
        self.message_timeout_s = self.seconds("message.timeout.ms", 300_000)
        self.propagation_s = self.seconds("topic.metadata.propagation.max.ms", 30_000)
        self.refresh_s = self.seconds("topic.metadata.refresh.interval.ms", 300_000)
        self.batch_bytes = int(self.number("batch.size", 1_000_000))
        self.batch_records = int(self.number("batch.num.messages", 10_000))
        self.queue_max = int(self.number("queue.buffering.max.messages", 100_000))
        self.record_max = int(self.number("message.max.bytes", 1_000_000))
        self.queue: deque[Queued] = deque()
        self.in_flight = 0
        self.is_sending = False
        self.hurry = Signal(self.schedule)
        self.progress = Signal(self.schedule)
        self.identity = (-1, -1)
        """Producer id and epoch."""
        self.sequences: dict[PartitionKey, int] = {}
        self.known: dict[str, tuple[int, float]] = {}
        """Partitions of each topic, and when that was asked."""
        self.failures = 0
        """Records of the open transaction that were not delivered."""
        self.is_hurried = False

    def __len__(self) -> int:
        return len(self.queue) + self.in_flight + len(self.told)

    def enqueue(self, place: PartitionKey, record: NewRecord, report: Callable[[Any, Any], object] | None) -> None:
        """BufferError when the queue is full."""
        if record_bytes(record, 0, 0) > self.record_max:
            raise create_exception(KafkaError.MSG_SIZE_TOO_LARGE, "Unable to produce message: Broker: Message size too large")
        if len(self) >= self.queue_max:
            raise BufferError("Local: Queue full")
        topic, partition = place
        if topic in self.known and not 0 <= partition < self.known[topic][0]:
            raise create_exception(KafkaError._UNKNOWN_PARTITION, "Unable to produce message: Local: Unknown partition")
        self.queue.append(Queued(place, record, report, self.schedule.now + self.message_timeout_s))
        if not self.is_sending:
            self.is_sending = True
            self.start(self._work, f"sender of {self.client_id}")

    def may_send(self) -> bool:
        """Whether what is queued may go now."""
        return True

    def prepare(self, places: list[PartitionKey]) -> bool:  # noqa: ARG002
        """What has to be asked before records go to these partitions; whether they may."""
        return True

    def on_refused(self, code: int, text: str) -> None:
        """A batch was refused for good."""

    def wait_until_sent(self, timeout_s: float) -> int:
        """Flush: how many records or reports are left."""
        deadline = self.schedule.now + (timeout_s if timeout_s >= 0 else FOREVER_S)
        self.is_hurried = True
        self.hurry.notify()
        self.tell()
        while len(self) and self.schedule.now < deadline:
            self.schedule.wait(self.progress, deadline - self.schedule.now)
            self.tell()
        self.is_hurried = False
        return len(self)

    def _work(self) -> None:
        """The task: while there is something."""
        try:
            while self.queue:
                if not self.is_hurried:
                    self.schedule.wait(self.hurry, self.linger_s)
                if not self.may_send():
                    return
                batches = self._batches()
                if not self.prepare(list(dict.fromkeys(batch[0].place for batch in batches))):
                    for batch in batches:
                        self._report(batch, KafkaError._PURGE_QUEUE)
                    continue
                for batch in batches:
                    self._deliver(batch)
        finally:
            self.is_sending = False
            self.progress.notify()

    def _batches(self) -> list[list[Queued]]:
        """All that is queued, by partition, no batch over its size."""
        by_place: dict[PartitionKey, list[list[Queued]]] = {}
        sizes: dict[PartitionKey, int] = {}
        self.in_flight += len(self.queue)
        while self.queue:
            queued = self.queue.popleft()
            size = record_bytes(queued.record, 0, 0) + 8
            batches = by_place.setdefault(queued.place, [])
            total = sizes.get(queued.place, 0) + size
            if not batches or total > self.batch_bytes or len(batches[-1]) >= self.batch_records:
                batches.append([])
                total = BATCH_BYTES + size
            batches[-1].append(queued)
            sizes[queued.place] = total
        return [batch for batches in by_place.values() for batch in batches]

    def _deliver(self, batch: list[Queued]) -> None:
        place = batch[0].place
        left_s = batch[0].deadline - self.schedule.now
        try:
            if not self.may_send():
                self._report(batch, KafkaError._PURGE_QUEUE)
                return
            code = self._unknown(place, left_s)
            if code:
                self._report(batch, code)
                return
            if self.cluster.record_delay_s and "transactional.id" in self.options:
                self.schedule.sleep(min(len(batch) * self.cluster.record_delay_s, max(0.0, left_s)))
            offset, appended_ms = self._produce(place, [queued.record for queued in batch], batch[0].deadline)
        except (RequestTimedOut, ConnectionLost):
            self.on_refused(KafkaError._TIMED_OUT, f"{len(batch)} message(s) timed out on {place[0]} [{place[1]}]")
            self._report(batch, KafkaError._MSG_TIMED_OUT)
        except BrokerError as error:
            if "transactional.id" in self.options:  # a gap: the next batch is refused for it, and only a new epoch mends that
                self.sequences[place] = self.sequences.get(place, 0) + len(batch)
            self.on_refused(error.code, f"ProduceRequest for {place[0]} [{place[1]}] with {len(batch)} message(s) failed: "
                            f"{KafkaError(error.code).str()} (broker 1): current transaction must be aborted")
            is_retried = error.code == KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER and "transactional.id" in self.options
            self._report(batch, KafkaError._PURGE_QUEUE if is_retried else error.code)
        else:
            self._report(batch, 0, offset, appended_ms)

    def _produce(self, place: PartitionKey, records: list[NewRecord], deadline: float) -> tuple[int, int]:
        writer = PLAIN
        if self.is_idempotent:
            if self.identity[0] < 0:
                self.identity = (self.ask("InitProducerId", self.cluster.transactions.new_producer_id, deadline - self.schedule.now), 0)
            writer = Writer(*self.identity, self.sequences.get(place, 0), "transactional.id" in self.options)
        transactional_id = self.options.get("transactional.id")
        while True:
            try:
                answer = self.ask("Produce", lambda: self.cluster.produce(*place, records, writer, transactional_id), deadline - self.schedule.now)
            except BrokerError as error:
                if error.code not in (KafkaError.CONCURRENT_TRANSACTIONS, KafkaError.UNKNOWN_TOPIC_OR_PART):
                    raise
                self.schedule.sleep(AGAIN_S)
                if self.schedule.now >= deadline:
                    raise RequestTimedOut from None
                self.known.pop(place[0], None)
                code = self._unknown(place, deadline - self.schedule.now)
                if code:
                    raise BrokerError(code) from None
            else:
                if self.is_idempotent:
                    self.sequences[place] = writer.sequence + len(records)
                return answer

    def _unknown(self, place: PartitionKey, left_s: float) -> int:
        """Why the partition cannot be written to; 0 when it is there."""
        topic, partition = place
        until = self.schedule.now + min(left_s, self.propagation_s)
        count, asked_at = self.known.get(topic, (-1, 0.0))
        if count > partition and self.schedule.now < asked_at + self.refresh_s:
            return 0
        while True:
            count = self.ask("Metadata", lambda: len(self.cluster.topics[topic].logs) if topic in self.cluster.topics else -1, left_s)
            if count > 0:
                self.known[topic] = count, self.schedule.now
                return 0 if partition < count else int(KafkaError._UNKNOWN_PARTITION)
            if self.schedule.now >= until:
                return int(KafkaError.UNKNOWN_TOPIC_OR_PART)
            self.schedule.sleep(min(0.25, until - self.schedule.now))

    def _report(self, batch: list[Queued], code: int, offset: int = NOT_SENT, appended_ms: int = -1) -> None:
        """Delivery reports, for the application's next poll."""
        self.in_flight -= len(batch)
        self.failures += len(batch) if code else 0
        for number, queued in enumerate(batch):
            if queued.report:
                self.told.append(self._reported(queued, code, offset + number if not code else NOT_SENT, appended_ms))
        self.progress.notify()

    @staticmethod
    def _reported(queued: Queued, code: int, offset: int, appended_ms: int) -> Callable[[], object]:
        record, report = queued.record, queued.report
        headers: Any = record.headers
        assert report is not None
        error = create_error(code) if code else None
        timestamp = (2, appended_ms) if appended_ms >= 0 else (1, record.timestamp_ms)
        return lambda: report(error, Message(*queued.place, offset, record.key, record.value, headers, error, timestamp))

    def drop_queue(self) -> None:
        """Purge what was not sent yet."""
        batch = list(self.queue)
        self.queue.clear()
        self.in_flight += len(batch)
        self._report(batch, KafkaError._PURGE_QUEUE)
