"""A steady load on the source topic, so that records are in flight at every fault.

Records without a transaction are written at a constant rate; every half second there is also a
transaction, and every second one aborts: its records must never be visible. A record that could not
be written while the source was down is not an error: the judge compares the topics.
"""

from __future__ import annotations

import itertools
import threading
import time
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Producer

from tests.harness.copy_judge import Record
from tests.harness.kafka import Cluster, make_record

TICK_S = 0.02
TRANSACTION_EVERY = 25
"""Ticks."""
TRANSACTION_RECORDS = 20
PATIENCE_S = 5.0


class Load(threading.Thread):
    """Writes until `stop`; `partitions` may be raised while it runs; `pause` pauses it."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        partitions: int,
        records_per_s: int = 4000,
        *,
        paused: bool = False,
    ) -> None:
        super().__init__(daemon=True, name=f"load of {topic}")
        self.cluster = cluster
        self.topic = topic
        self.partitions = partitions
        self.records_per_s = records_per_s
        self.numbers = itertools.count()
        self.produced = 0
        """Records passed to the producer so far."""
        self.aborted = 0
        self.failure: Exception | None = None
        self._stopping = threading.Event()
        self._paused = threading.Event()
        if paused:
            self._paused.set()
        self._idle = threading.Event()
        self._transactional: Producer | None = None

    def __enter__(self) -> Self:
        """Begin to write."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self.stop()

    def run(self) -> None:
        """Write one tick after the other; `stop` raises an unexpected error."""
        try:
            self._write()
        except Exception as failure:
            self.failure = failure

    def stop(self) -> None:
        """End the load: all records that were passed to the producer are delivered or have
        failed.
        """
        self._stopping.set()
        if self.is_alive():
            self.join(60)
        if self.failure or self.is_alive():
            raise RuntimeError(f"the load failed: {self.failure or 'its thread does not end'}")

    def pause(self) -> None:
        """Write nothing until `resume`; returns when all records are delivered."""
        self._idle.clear()
        self._paused.set()
        if self.is_alive() and not self._idle.wait(60):
            raise RuntimeError("the load does not pause")

    def resume(self) -> None:
        """Write again."""
        self._paused.clear()

    def _write(self) -> None:
        producer = self.cluster.producer(linger_ms=2, message_timeout_ms=300_000)
        due = time.monotonic()
        for tick in itertools.count():
            if self._stopping.is_set():
                break
            if self._paused.is_set():
                producer.flush(30)
                self._idle.set()
                self._stopping.wait(TICK_S)
                due = time.monotonic()
                continue
            for _ in range(int(self.records_per_s * TICK_S)):
                self._produce(producer, make_record(next(self.numbers)))
            producer.poll(0)
            if tick % TRANSACTION_EVERY == TRANSACTION_EVERY - 1:
                self._write_transaction(abort=tick // TRANSACTION_EVERY % 2 == 0)
            due += TICK_S
            self._stopping.wait(max(0.0, due - time.monotonic()))
        producer.flush(30)

    def _produce(self, producer: Producer, record: Record) -> None:
        while not self._stopping.is_set():
            try:
                number = self.produced
                producer.produce(
                    self.topic,
                    record.value,
                    record.key,
                    number % self.partitions,
                    None,
                    None,
                    record.timestamp_ms,
                    list(record.headers),
                )
            except BufferError:  # the source is down for long
                producer.poll(0.1)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:
                    raise
                # a new partition, which this client does not know yet
                producer.list_topics(self.topic, PATIENCE_S)
            else:
                self.produced += 1
                return

    def _write_transaction(self, *, abort: bool) -> None:
        """Write some records in a transaction; after an error the next transaction has a new
        producer.
        """
        try:
            if self._transactional is None:
                self._transactional = self.cluster.producer(
                    transactional_id=f"load-{self.topic}",
                    transaction_timeout_ms=10_000,
                    socket_timeout_ms=5000,
                )
                self._transactional.init_transactions(PATIENCE_S)
            self._transactional.begin_transaction()
            for _ in range(TRANSACTION_RECORDS):
                number = next(self.numbers)
                value = b"%s %d" % (b"aborted" if abort else b"committed", number)
                self._produce(
                    self._transactional,
                    Record(b"transaction", value, (), 1_700_000_000_000 + number),
                )
            if abort:
                self._transactional.flush(PATIENCE_S)  # so that the broker has records to abort
                self._transactional.abort_transaction(PATIENCE_S)
                self.aborted += TRANSACTION_RECORDS
            else:
                self._transactional.commit_transaction(PATIENCE_S)
        except KafkaException:
            self._transactional = None
