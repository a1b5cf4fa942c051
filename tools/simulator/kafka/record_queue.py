"""A producer's queue: the records that are not sent yet as batches, and the delivery reports.

Delivery reports wait for the application's next poll or flush.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, Message

from tools.simulator.kafka.batch_sizes import BATCH_BYTES, record_bytes
from tools.simulator.kafka.client import Client
from tools.simulator.kafka.errors import create_error
from tools.simulator.kafka.log_records import NewRecord
from tools.simulator.schedule import Signal

PartitionKey = tuple[str, int]
NOT_SENT = -1001


class Queued(NamedTuple):
    """A record in the queue."""

    partition_key: PartitionKey
    record: NewRecord
    report: Callable[[Any, Any], object] | None
    deadline: float


class RecordQueue(Client):
    """The part of a producer that has its records and delivery reports."""

    def __init__(self, network: Any, options: Any) -> None:
        super().__init__(network, options)
        self.batch_bytes = int(self.get_number("batch.size", 1_000_000))
        self.batch_records_max = int(self.get_number("batch.num.messages", 10_000))
        self.queue: deque[Queued] = deque()
        self.in_flight = 0
        self.progress = Signal(self.schedule)
        self.failures = 0
        """Records of the open transaction that were not delivered."""

    def __len__(self) -> int:
        return len(self.queue) + self.in_flight + len(self.pending_callbacks)

    def take_batches(self) -> list[list[Queued]]:
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
                or total > self.batch_bytes
                or len(batches[-1]) >= self.batch_records_max
            ):
                batches.append([])
                total = BATCH_BYTES + size
            batches[-1].append(queued)
            sizes[queued.partition_key] = total
        return [batch for batches in batches_by_partition.values() for batch in batches]

    def report(
        self, batch: list[Queued], code: int, offset: int = NOT_SENT, appended_ms: int = -1
    ) -> None:
        """Queue delivery reports for the application's next poll."""
        self.in_flight -= len(batch)
        self.failures += len(batch) if code else 0
        for number, queued in enumerate(batch):
            if queued.report:
                self.pending_callbacks.append(
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
        self.report(batch, KafkaError._PURGE_QUEUE)
