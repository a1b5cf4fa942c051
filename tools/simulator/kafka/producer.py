"""confluent-kafka's Producer: records, and transactions v1 with librdkafka's states, codes and
flags (`rdkafka_txnmgr.c`). Commit and abort are in `transaction_end`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

from tools.simulator.kafka.errors import (
    BrokerError,
    ConnectionLost,
    RequestTimedOut,
    create_exception,
)
from tools.simulator.kafka.group_metadata import parse_metadata
from tools.simulator.kafka.log_records import NewRecord, Writer
from tools.simulator.kafka.network import FOREVER_S, Network
from tools.simulator.kafka.producer_transaction_end import TransactionEnd
from tools.simulator.kafka.producer_transaction_state import FATAL_CODES, normalize_code
from tools.simulator.kafka.record_queue import PartitionKey
from tools.simulator.kafka.sender import CONCURRENT_RETRY_S, RETRY_S
from tools.simulator.schedule import START_UNIX_S

Bytes = str | bytes | None


class Producer(TransactionEnd):
    """The part of the interface that reo uses."""

    def __init__(self, network: Network, options: dict[str, Any]) -> None:
        super().__init__(network, options)
        self.registered_partitions: set[PartitionKey] = set()

    # ---- records

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
        if self.state == "FatalError":
            raise create_exception(
                KafkaError._FATAL, "Unable to produce message: Local: Fatal error"
            )
        if self.transactional_id is not None and self.state != "InTransaction":
            raise create_exception(
                KafkaError._STATE, "Unable to produce message: Local: Erroneous state"
            )
        pairs = list(headers.items() if isinstance(headers, dict) else headers) if headers else None
        partition_key = topic, max(partition, 0)
        encoded_headers = [(name, encode_text(header)) for name, header in pairs] if pairs else None
        record = NewRecord(
            encode_text(key), encode_text(value), encoded_headers, timestamp or self._now_ms()
        )
        self.enqueue(partition_key, record, callback or on_delivery)

    def _now_ms(self) -> int:
        offset_s = self.process.clock_offset_s if self.process else 0.0
        return int((START_UNIX_S + self.schedule.now + offset_s) * 1000)

    def poll(self, timeout: float = -1) -> int:
        """Run pending callbacks. Returns how many there were."""
        self.notice_outage()
        count = self.run_callbacks()
        if not count and timeout:
            self.schedule.wait(self.progress, timeout if timeout >= 0 else FOREVER_S)
            count = self.run_callbacks()
        return count

    def flush(self, timeout: float = -1) -> int:
        """Flush. Returns how many records and reports remain."""
        return self.wait_until_sent(timeout)

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:  # noqa: ARG002
        """Purge the records that are not sent."""
        if in_queue:
            self.drop_queue()

    def may_send(self) -> bool:
        """A transactional producer may send only within a transaction."""
        return self.transactional_id is None or self.state in ("InTransaction", "BeginCommit")

    def prepare_partitions(self, partition_keys: list[PartitionKey]) -> bool:
        """AddPartitionsToTxn, retried until there is a response."""
        if self.transactional_id is None:
            return True
        new_keys = [key for key in partition_keys if key not in self.registered_partitions]
        new_keys = [key for key in new_keys if not self._is_unknown_partition(key)]
        while new_keys and self.may_send():
            try:
                add_partitions = partial(
                    self.cluster.transactions.add_partitions,
                    str(self.transactional_id),
                    *self.identity,
                    new_keys,
                )
                self.request("AddPartitionsToTxn", add_partitions, self.message_timeout_s)
            except (RequestTimedOut, ConnectionLost):
                self._set_abortable_error(
                    KafkaError._TIMED_OUT,
                    "Failed to add partition(s) to transaction: Local: Timed out",
                )
            except BrokerError as error:
                if error.code in (
                    KafkaError.CONCURRENT_TRANSACTIONS,
                    KafkaError.UNKNOWN_TOPIC_OR_PART,
                ):
                    self.schedule.sleep(CONCURRENT_RETRY_S)
                    new_keys = [
                        key
                        for key in new_keys
                        if error.code == KafkaError.CONCURRENT_TRANSACTIONS
                        or not self._is_unknown_partition(key, True)
                    ]
                    continue
                self.on_error(
                    error.code,
                    "Failed to add partition(s) to transaction on broker 1:"
                    f" {KafkaError(error.code).str()} (after 0 ms)",
                )
            else:
                self.registered_partitions.update(new_keys)
                self.is_registered = True
                new_keys = []
        return self.may_send()

    def _is_unknown_partition(
        self, partition_key: PartitionKey, is_refreshed: bool = False
    ) -> bool:
        if is_refreshed:
            self.topic_partitions_cache.pop(partition_key[0], None)
        try:
            return self.find_partition_error(partition_key, self.message_timeout_s) != 0
        except (RequestTimedOut, ConnectionLost):
            return True

    # ---- transactions

    def init_transactions(self, timeout: float = -1) -> None:
        """Get a new epoch. The coordinator aborts an open transaction of this transactional id."""
        deadline = self._begin_api_call("init_transactions", timeout, "Init")
        while True:
            try:
                self.init_producer_id(deadline)
            except BrokerError as error:
                if error.code != KafkaError.CONCURRENT_TRANSACTIONS:
                    self._set_fatal_error(
                        normalize_code(error.code),
                        "Failed to acquire transactional PID from broker 1:"
                        f" {KafkaError(error.code).str()}",
                    )
                    raise self._create_state_error() from None
            except (RequestTimedOut, ConnectionLost):
                raise self._create_timeout_error(
                    "Failed to initialize Producer ID: Local: Timed out"
                ) from None
            else:
                self.state, self.api_call = "Ready", ""
                return
            if self.schedule.now + RETRY_S >= deadline:
                self.schedule.sleep(max(0.0, deadline - self.schedule.now))
                raise self._create_timeout_error(
                    "Failed to initialize Producer ID: Broker: Concurrent transactions"
                )
            self.schedule.sleep(RETRY_S)

    def begin_transaction(self) -> None:
        """Begin a transaction. No request is sent before the first record."""
        self._begin_api_call("begin_transaction", 0, "Ready")
        self.state, self.registered_partitions, self.is_registered = "InTransaction", set(), False
        self.failures, self.is_epoch_bump_needed, self.api_call = 0, False, ""

    def send_offsets_to_transaction(
        self, positions: Sequence[TopicPartition], group_metadata: bytes, timeout: float = -1
    ) -> None:
        """AddOffsetsToTxn, then TxnOffsetCommit."""
        deadline = self._begin_api_call(
            "send_offsets_to_transaction",
            timeout if timeout >= 0 else self.transaction_timeout_s,
            "InTransaction",
        )
        group, member = parse_metadata(group_metadata)
        offsets = {
            (position.topic, position.partition): (position.offset, position.metadata or "")
            for position in positions
            if position.offset >= 0
        }
        transactions, name = self.cluster.transactions, str(self.transactional_id)
        self.api_call = ""
        if not offsets:
            return
        try:
            self._request_until_done(
                "AddOffsetsToTxn",
                lambda: transactions.add_partitions(name, *self.identity, [group]),
                deadline,
                CONCURRENT_RETRY_S,
            )
            self.is_registered = True
            if self.has_lost_coordinator():
                self.schedule.sleep(FOREVER_S)
            self._request_until_done(
                "TxnOffsetCommit",
                lambda: self.cluster.commit_in_transaction(
                    name, Writer(*self.identity), group, offsets, member
                ),
                deadline,
                0.5,
            )
        except (RequestTimedOut, ConnectionLost):
            self._set_abortable_error(
                KafkaError._TIMED_OUT, "Failed to send offsets to transaction: Local: Timed out"
            )
            raise self._create_state_error() from None
        except BrokerError as error:
            text = (
                "Failed to commit offsets to transaction on broker 1:"
                f" {KafkaError(error.code).str()}"
            )
            if error.code in FATAL_CODES or error.code == KafkaError.INVALID_PRODUCER_ID_MAPPING:
                self._set_fatal_error(normalize_code(error.code), text)
            else:
                self._set_abortable_error(error.code, text)
            raise self._create_state_error() from None

    def _request_until_done(
        self, api: str, execute: Callable[[], object], deadline: float, pause_s: float
    ) -> None:
        """Retry a request until it succeeds, fails for good, or times out."""
        while True:
            try:
                self.request(api, execute, deadline - self.schedule.now)
            except BrokerError as error:
                if error.code not in (
                    KafkaError.CONCURRENT_TRANSACTIONS,
                    KafkaError.UNKNOWN_TOPIC_OR_PART,
                ):
                    raise
                if self.schedule.now + pause_s >= deadline:
                    raise (
                        error
                        if error.code != KafkaError.CONCURRENT_TRANSACTIONS
                        else RequestTimedOut
                    ) from None
                self.schedule.sleep(pause_s)
            else:
                return


def encode_text(text: Bytes) -> bytes | None:
    """Encode text as UTF-8."""
    return text.encode() if isinstance(text, str) else text
