"""The state of a transactional producer, with librdkafka's names, and its errors for calls that the
state does not allow (`rdkafka_txnmgr.c`).
"""

from __future__ import annotations

from typing import Any, Literal

from confluent_kafka import KafkaError, KafkaException

from tools.simulator.kafka.errors import create_exception
from tools.simulator.kafka.network import FOREVER_S
from tools.simulator.kafka.sender import Sender

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


class TransactionState(Sender):
    """The part of a producer that has its transaction state."""

    def __init__(self, network: Any, options: Any) -> None:
        super().__init__(network, options)
        self.transactional_id = options.get("transactional.id")
        self.state: State = "Init"
        self.error: tuple[int, str] = (0, "")
        """The error of the transaction, or the fatal error."""
        self.api_call = ""
        """The transactional call that timed out: only the same call is allowed now."""
        self.is_epoch_bump_needed = False
        """Whether the abort must request a new epoch."""

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
            self.pending_callbacks.appendleft(self._raise_fatal)
            self.drop_queue()

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
