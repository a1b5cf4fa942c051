"""The end of a producer's transaction: commit, abort, the new epoch that an abort may need."""

from __future__ import annotations

from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from tools.simulator.kafka.errors import BrokerError, ConnectionLost, RequestTimedOut
from tools.simulator.kafka.network import FOREVER_S
from tools.simulator.kafka.producer_transaction_state import (
    FATAL_CODES,
    TransactionState,
    normalize_code,
)
from tools.simulator.kafka.sender import RETRY_S
from tools.simulator.schedule import Signal


class TransactionEnd(TransactionState):
    """The part of a producer that ends its transactions."""

    def __init__(self, network: Any, options: Any) -> None:
        super().__init__(network, options)
        self.transaction_timeout_s = self.get_seconds("transaction.timeout.ms", 60_000)
        self.is_registered = False
        """Whether the coordinator knows the open transaction."""
        self.commit_result: KafkaException | bool | None = None
        """The result of the EndTxn that commits; None until the response, whether a call waits for
        it or not.
        """
        self.commit_answered = Signal(self.schedule)

    def init_producer_id(self, deadline: float) -> None:
        """InitProducerId: a new epoch, with sequences from 0."""
        init_producer_id = partial(
            self.cluster.transactions.init_producer_id,
            str(self.transactional_id),
            self.transaction_timeout_s,
        )
        self.identity = self.request(
            "InitProducerId", init_producer_id, deadline - self.schedule.now
        )
        self.sequences = {}

    def commit_transaction(self, timeout: float = -1) -> None:
        """Wait for the records, then EndTxn. After a timeout the request goes on, and the next call
        waits for the same response.
        """
        if self.api_call == "commit_transaction" and isinstance(self.commit_result, KafkaException):
            self._raise_commit_result()
        deadline = self._begin_api_call(
            "commit_transaction", timeout, "InTransaction", "BeginCommit", "CommittingTransaction"
        )
        if self.state == "InTransaction":
            self.state = "BeginCommit"
        self._flush_for(deadline)
        if self.state not in ("BeginCommit", "CommittingTransaction"):
            raise self._create_state_error()
        if self.failures:
            self._set_abortable_error(
                KafkaError._INCONSISTENT,
                f"{self.failures} message(s) failed delivery (see individual delivery reports)",
            )
            raise self._create_state_error()
        if self.is_registered:
            if self.state == "BeginCommit":
                self.state, self.commit_result = "CommittingTransaction", None
                self.start(self._send_commit, f"commit of {self.client_id}")
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

    def abort_transaction(self, timeout: float = -1) -> None:
        """Purge the records that are not sent, wait for the others, then EndTxn."""
        deadline = self._begin_api_call(
            "abort_transaction",
            timeout,
            "InTransaction",
            "BeginAbort",
            "AbortingTransaction",
            "AbortableError",
        )
        if self.state != "AbortingTransaction":
            self.state = "BeginAbort"
        self.drop_queue()
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
                self.init_producer_id(deadline)
            except BrokerError:
                self.schedule.sleep(RETRY_S)
            except (RequestTimedOut, ConnectionLost):
                raise self._create_timeout_error() from None
            else:
                self.is_epoch_bump_needed = False
                return

    def _flush_for(self, deadline: float) -> None:
        remaining_records = self.wait_until_sent(deadline - self.schedule.now)
        if remaining_records:
            raise self._create_timeout_error(
                "Failed to flush all outstanding messages within the API timeout:"
                f" {remaining_records} message(s) remaining"
            )

    def _end_transaction(self, commit: bool, deadline: float) -> None:
        """EndTxn, retried until the outcome is known."""
        while True:
            try:
                self.request(
                    "EndTxn",
                    lambda: self.cluster.transactions.end(
                        str(self.transactional_id), *self.identity, commit
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
