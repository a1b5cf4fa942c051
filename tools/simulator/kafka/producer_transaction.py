"""A producer's transactions: transactions v1 with librdkafka's states, codes and flags, and its
errors for calls that the state does not allow (`rdkafka_txnmgr.c`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tools.simulator.kafka.errors import (
    BrokerError,
    ConnectionLost,
    RequestTimedOut,
    create_exception,
)
from tools.simulator.kafka.group_metadata import parse_metadata
from tools.simulator.kafka.log_records import Writer
from tools.simulator.kafka.network import FOREVER_S
from tools.simulator.kafka.sender import CONCURRENT_RETRY_S, RETRY_S, PartitionKey
from tools.simulator.schedule import Signal

if TYPE_CHECKING:
    from tools.simulator.kafka.producer import Producer

State = Literal[
    "Init",
    "Ready",
    "InTransaction",
    "BeginCommit",
    "CommittingTransaction",
    "BeginAbort",
    "AbortingTransaction",
    "AbortableError",
    "FatalError",
]
FENCED_CODES = frozenset({KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED})
FATAL_CODES = FENCED_CODES | {KafkaError.INVALID_TXN_STATE}
EPOCH_BUMP_CODES = frozenset(
    {
        KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)
"""After these errors, the abort requests a new epoch."""


def normalize_code(code: int) -> int:
    """The code that librdkafka reports for a broker's code."""
    return int(KafkaError._FENCED if code in FENCED_CODES else code)


class ProducerTransaction:
    """The state of a producer's transactional calls. A producer without a transactional id has one
    too, in which every call is refused.
    """

    def __init__(self, producer: Producer) -> None:
        self.producer, self.sender = producer, producer.sender
        self.schedule, self.cluster = producer.schedule, producer.cluster
        self.transactional_id = producer.options.get("transactional.id")
        self.timeout_s = producer.get_seconds("transaction.timeout.ms", 60_000)
        self.state: State = "Init"
        self.error: tuple[int, str] = (0, "")
        """The error of the transaction, or the fatal error."""
        self.api_call = ""
        """The transactional call that timed out: only the same call is allowed now."""
        self.is_epoch_bump_needed = False
        """Whether the abort must request a new epoch."""
        self.registered_partitions: set[PartitionKey] = set()
        self.is_registered = False
        """Whether the coordinator knows the open transaction."""
        self.commit_result: KafkaException | bool | None = None
        """The result of the EndTxn that commits; None until the response, whether a call waits for
        it or not.
        """
        self.commit_answered = Signal(self.schedule)

    def may_send(self) -> bool:
        """A transactional producer may send only within a transaction."""
        return self.transactional_id is None or self.state in ("InTransaction", "BeginCommit")

    def add_partitions(self, partition_keys: list[PartitionKey]) -> bool:
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
                    *self.sender.identity,
                    new_keys,
                )
                self.producer.request(
                    "AddPartitionsToTxn", add_partitions, self.sender.message_timeout_s
                )
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
            self.sender.topic_partitions_cache.pop(partition_key[0], None)
        try:
            return (
                self.sender.find_partition_error(partition_key, self.sender.message_timeout_s) != 0
            )
        except (RequestTimedOut, ConnectionLost):
            return True

    def on_error(self, code: int, text: str) -> None:
        """A permanent error fails the transaction; fencing fails the producer, and so does, without
        transactions, a partition that has lost the producer's records.
        """
        if self.transactional_id is None:
            if code == KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER:
                self._set_fatal_error(code, text)
            return
        if self.state == "FatalError":
            return
        if code in FENCED_CODES or (
            code == KafkaError.INVALID_TXN_STATE and text.startswith("Failed to add")
        ):
            fenced_text = text.replace(
                "current transaction must be aborted",
                "transactional producer fenced by newer producer instance",
            )
            self._set_fatal_error(normalize_code(code), fenced_text)
        else:
            self.is_epoch_bump_needed = (
                self.is_epoch_bump_needed
                or code in EPOCH_BUMP_CODES
                or code == KafkaError._TIMED_OUT
            )
            self._set_abortable_error(code, text)

    def _set_abortable_error(self, code: int, text: str) -> None:
        if self.state in ("InTransaction", "BeginCommit", "CommittingTransaction"):
            self.state, self.error = "AbortableError", (code, text)

    def _set_fatal_error(self, code: int, text: str) -> None:
        if self.state != "FatalError":
            self.state, self.error = "FatalError", (code, text)
            self.producer.pending_callbacks.appendleft(self._raise_fatal)
            self.sender.drop_queue()

    def _raise_fatal(self) -> None:
        """Raise the fatal error from the application's next poll or flush."""
        raise create_exception(*self.error, fatal=True)

    def _begin_api_call(self, name: str, timeout_s: float, *states: State) -> float:
        """The deadline of a transactional call. KafkaException when the state does not allow the
        call.
        """
        if self.transactional_id is None:
            raise create_exception(
                KafkaError._NOT_CONFIGURED,
                "The Transactional API requires transactional.id to be configured",
            )
        if self.api_call and self.api_call != name:
            raise create_exception(
                KafkaError._CONFLICT,
                f"Conflicting {self.api_call} API call is already in progress",
                retriable=True,
            )
        if self.state not in states:
            raise self._create_state_error()
        self.api_call = name
        return self.schedule.now + (timeout_s if timeout_s >= 0 else FOREVER_S)

    def _create_state_error(self, text: str = "") -> KafkaException:
        """End the call, and create librdkafka's error for the current state."""
        self.api_call = ""
        code, reason = self.error
        if self.state == "FatalError":
            return create_exception(code, text or reason, fatal=True)
        if self.state == "AbortableError":
            return create_exception(code, text or reason, aborts=True)
        return create_exception(KafkaError._STATE, f"Operation not valid in state {self.state}")

    @staticmethod
    def _create_timeout_error(
        text: str = "Timed out waiting for operation to finish, retry call to resume",
    ) -> KafkaException:
        return create_exception(KafkaError._TIMED_OUT, text, retriable=True)

    # ---- the calls of the application

    def init(self, timeout_s: float) -> None:
        """Get a new epoch. The coordinator aborts an open transaction of this transactional id."""
        deadline = self._begin_api_call("init_transactions", timeout_s, "Init")
        while True:
            try:
                self._init_producer_id(deadline)
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

    def begin(self) -> None:
        """Begin a transaction. No request is sent before the first record."""
        self._begin_api_call("begin_transaction", 0, "Ready")
        self.state, self.registered_partitions, self.is_registered = "InTransaction", set(), False
        self.sender.failures, self.is_epoch_bump_needed, self.api_call = 0, False, ""

    def send_offsets(
        self, positions: Sequence[TopicPartition], group_metadata: bytes, timeout_s: float
    ) -> None:
        """AddOffsetsToTxn, then TxnOffsetCommit."""
        deadline = self._begin_api_call(
            "send_offsets_to_transaction",
            timeout_s if timeout_s >= 0 else self.timeout_s,
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
                lambda: transactions.add_partitions(name, *self.sender.identity, [group]),
                deadline,
                CONCURRENT_RETRY_S,
            )
            self.is_registered = True
            if self.producer.has_lost_coordinator():
                self.schedule.sleep(FOREVER_S)
            self._request_until_done(
                "TxnOffsetCommit",
                lambda: self.cluster.commit_in_transaction(
                    name, Writer(*self.sender.identity), group, offsets, member
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
                self.producer.request(api, execute, deadline - self.schedule.now)
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

    def _init_producer_id(self, deadline: float) -> None:
        """InitProducerId: a new epoch, with sequences from 0."""
        init_producer_id = partial(
            self.cluster.transactions.init_producer_id,
            str(self.transactional_id),
            self.timeout_s,
        )
        self.sender.identity = self.producer.request(
            "InitProducerId", init_producer_id, deadline - self.schedule.now
        )
        self.sender.sequences = {}

    def commit(self, timeout_s: float) -> None:
        """Wait for the records, then EndTxn. After a timeout the request goes on, and the next call
        waits for the same response.
        """
        if self.api_call == "commit_transaction" and isinstance(self.commit_result, KafkaException):
            self._raise_commit_result()
        deadline = self._begin_api_call(
            "commit_transaction", timeout_s, "InTransaction", "BeginCommit", "CommittingTransaction"
        )
        if self.state == "InTransaction":
            self.state = "BeginCommit"
        self._flush_for(deadline)
        if self.state not in ("BeginCommit", "CommittingTransaction"):
            raise self._create_state_error()
        if self.sender.failures:
            self._set_abortable_error(
                KafkaError._INCONSISTENT,
                f"{self.sender.failures} message(s) failed delivery (see individual delivery"
                " reports)",
            )
            raise self._create_state_error()
        if self.is_registered:
            if self.state == "BeginCommit":
                self.state, self.commit_result = "CommittingTransaction", None
                self.producer.start(self._send_commit, f"commit of {self.producer.client_id}")
            while self.commit_result is None:
                if self.schedule.now >= deadline:
                    raise self._create_timeout_error()
                self.schedule.wait(self.commit_answered, deadline - self.schedule.now)
            self._raise_commit_result()
        self.state, self.api_call = "Ready", ""

    def _raise_commit_result(self) -> None:
        result, self.commit_result = self.commit_result, None
        if isinstance(result, KafkaException):
            self.api_call = ""
            raise result

    def _send_commit(self) -> None:
        """A task of its own: stores the response for the call that waits for it."""
        result: KafkaException | bool = True
        try:
            self._end_transaction(True, self.schedule.now + FOREVER_S)
        except KafkaException as failed:
            result = failed
        self.commit_result = result
        self.commit_answered.notify()

    def abort(self, timeout_s: float) -> None:
        """Purge the records that are not sent, wait for the others, then EndTxn."""
        deadline = self._begin_api_call(
            "abort_transaction",
            timeout_s,
            "InTransaction",
            "BeginAbort",
            "AbortingTransaction",
            "AbortableError",
        )
        if self.state != "AbortingTransaction":
            self.state = "BeginAbort"
        self.sender.drop_queue()
        self._flush_for(deadline)
        self._raise_if_fatal()
        if self.is_registered:
            self.state = "AbortingTransaction"
            self._end_transaction(False, deadline)
        if self.is_epoch_bump_needed:
            self._bump_epoch(deadline)
        self.state, self.api_call = "Ready", ""

    def _raise_if_fatal(self) -> None:
        if self.state == "FatalError":
            raise self._create_state_error()

    def _bump_epoch(self, deadline: float) -> None:
        while True:
            try:
                self._init_producer_id(deadline)
            except BrokerError:
                self.schedule.sleep(RETRY_S)
            except (RequestTimedOut, ConnectionLost):
                raise self._create_timeout_error() from None
            else:
                self.is_epoch_bump_needed = False
                return

    def _flush_for(self, deadline: float) -> None:
        remaining_records = self.sender.wait_until_sent(deadline - self.schedule.now)
        if remaining_records:
            raise self._create_timeout_error(
                "Failed to flush all outstanding messages within the API timeout:"
                f" {remaining_records} message(s) remaining"
            )

    def _end_transaction(self, commit: bool, deadline: float) -> None:
        """EndTxn, retried until the outcome is known."""
        while True:
            try:
                self.producer.request(
                    "EndTxn",
                    lambda: self.cluster.transactions.end(
                        str(self.transactional_id), *self.sender.identity, commit
                    ),
                    deadline - self.schedule.now,
                )
            except (RequestTimedOut, ConnectionLost):
                raise self._create_timeout_error() from None
            except BrokerError as error:
                if error.code != KafkaError.CONCURRENT_TRANSACTIONS:
                    self._on_end_error(error.code)
                    raise self._create_state_error(
                        f"EndTxn {'commit' if commit else 'abort'} failed:"
                        f" {KafkaError(normalize_code(error.code)).str()}"
                    ) from None
                if self.schedule.now + RETRY_S >= deadline:
                    raise self._create_timeout_error() from None
                self.schedule.sleep(RETRY_S)
            else:
                return

    def _on_end_error(self, code: int) -> None:
        if code in FATAL_CODES:
            self._set_fatal_error(
                normalize_code(code),
                f"Failed to end transaction: {KafkaError(normalize_code(code)).str()}",
            )
        else:
            self.state = "InTransaction"
            self._set_abortable_error(code, f"Failed to end transaction: {KafkaError(code).str()}")
