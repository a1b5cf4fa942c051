"""confluent-kafka's Producer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

from tools.simulator.kafka.client import Client
from tools.simulator.kafka.errors import create_exception
from tools.simulator.kafka.log_records import NewRecord
from tools.simulator.kafka.network import FOREVER_S, Network
from tools.simulator.kafka.producer_transaction import ProducerTransaction
from tools.simulator.kafka.sender import Sender
from tools.simulator.schedule import START_UNIX_S

Bytes = str | bytes | None


class Producer(Client):
    """The part of the interface that reo uses."""

    def __init__(self, network: Network, options: dict[str, Any]) -> None:
        super().__init__(network, options)
        self.sender = Sender(self)
        self.transaction = ProducerTransaction(self)

    def __len__(self) -> int:
        return len(self.sender)

    def produce(
        self,
        topic: str,
        value: Bytes = None,
        key: Bytes = None,
        partition: int = -1,
        callback: Callable[[Any, Any], object] | None = None,
        on_delivery: Callable[[Any, Any], object] | None = None,
        timestamp: int = 0,
        headers: dict[str, Bytes] | Sequence[tuple[str, Bytes]] | None = None,
    ) -> None:
        """Put a record into the queue. BufferError when the queue is full."""
        if self.transaction.state == "FatalError":
            raise create_exception(
                KafkaError._FATAL, "Unable to produce message: Local: Fatal error"
            )
        if self.sender.transactional_id is not None and self.transaction.state != "InTransaction":
            raise create_exception(
                KafkaError._STATE, "Unable to produce message: Local: Erroneous state"
            )
        pairs = list(headers.items() if isinstance(headers, dict) else headers) if headers else None
        partition_key = topic, max(partition, 0)
        encoded_headers = [(name, encode_text(header)) for name, header in pairs] if pairs else None
        record = NewRecord(
            encode_text(key), encode_text(value), encoded_headers, timestamp or self._now_ms()
        )
        self.sender.enqueue(partition_key, record, callback or on_delivery)

    def _now_ms(self) -> int:
        offset_s = self.process.clock_offset_s if self.process else 0.0
        return int((START_UNIX_S + self.schedule.now + offset_s) * 1000)

    def poll(self, timeout: float = -1) -> int:
        """Run pending callbacks. Returns how many there were."""
        self.notice_outage()
        count = self.run_callbacks()
        if not count and timeout:
            self.schedule.wait(self.sender.progress, timeout if timeout >= 0 else FOREVER_S)
            count = self.run_callbacks()
        return count

    def flush(self, timeout: float = -1) -> int:
        """Flush. Returns how many records and reports remain."""
        return self.sender.wait_until_sent(timeout)

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:  # noqa: ARG002
        """Purge the records that are not sent."""
        if in_queue:
            self.sender.drop_queue()

    # ---- transactions

    def init_transactions(self, timeout: float = -1) -> None:
        """Get a new epoch. The coordinator aborts an open transaction of this transactional id."""
        self.transaction.init(timeout)

    def begin_transaction(self) -> None:
        """Begin a transaction."""
        self.transaction.begin()

    def send_offsets_to_transaction(
        self, positions: Sequence[TopicPartition], group_metadata: bytes, timeout: float = -1
    ) -> None:
        """Commit offsets of the group with the transaction."""
        self.transaction.send_offsets(positions, group_metadata, timeout)

    def commit_transaction(self, timeout: float = -1) -> None:
        """Commit."""
        self.transaction.commit(timeout)

    def abort_transaction(self, timeout: float = -1) -> None:
        """Abort."""
        self.transaction.abort(timeout)


def encode_text(text: Bytes) -> bytes | None:
    """Encode text as UTF-8."""
    return text.encode() if isinstance(text, str) else text
