"""A transactional producer's state in librdkafka's words, and what it says of a call that does not fit (`rdkafka_txnmgr.c`)."""

from __future__ import annotations

from typing import Any, Literal

from confluent_kafka import KafkaError, KafkaException

from simulator.kafka.errors import create_exception
from simulator.kafka.network import FOREVER_S
from simulator.kafka.sender import Sender

State = Literal["Init", "Ready", "InTransaction", "BeginCommit", "CommittingTransaction", "BeginAbort", "AbortingTransaction", "AbortableError", "FatalError"]
FENCED = frozenset({KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED})
FATAL = FENCED | {KafkaError.INVALID_TXN_STATE}
BUMPING = frozenset({KafkaError.UNKNOWN_PRODUCER_ID, KafkaError.INVALID_PRODUCER_ID_MAPPING, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER})
"""After these a new epoch is asked for with the abort."""


def normalized(code: int) -> int:
    """What librdkafka calls it."""
    return int(KafkaError._FENCED if code in FENCED else code)


class TransactionState(Sender):
    """The part of a producer that knows whether a transaction is open, has failed, or can never be again."""

    def __init__(self, network: Any, options: Any) -> None:
        super().__init__(network, options)
        self.transactional_id = options.get("transactional.id")
        self.state: State = "Init"
        self.error: tuple[int, str] = (0, "")
        """Of the transaction, or the fatal one."""
        self.call = ""
        """The transactional call that can only be called again."""
        self.is_bumping = False
        """Whether the abort has to ask for a new epoch."""

    def on_refused(self, code: int, text: str) -> None:
        """A permanent failure fails the transaction; that of a fenced producer, everything."""
        if self.transactional_id is None or self.state == "FatalError":
            return
        if code in FENCED or (code == KafkaError.INVALID_TXN_STATE and text.startswith("Failed to add")):
            self._fail(normalized(code), text.replace("current transaction must be aborted", "transactional producer fenced by newer producer instance"))
        else:
            self.is_bumping = self.is_bumping or code in BUMPING or code == KafkaError._TIMED_OUT
            self._abortable(code, text)

    def _abortable(self, code: int, text: str) -> None:
        if self.state in ("InTransaction", "BeginCommit", "CommittingTransaction"):
            self.state, self.error = "AbortableError", (code, text)

    def _fail(self, code: int, text: str) -> None:
        if self.state != "FatalError":
            self.state, self.error = "FatalError", (code, text)
            self.told.appendleft(self._raise_fatal)
            self.drop_queue()

    def _raise_fatal(self) -> None:
        """Out of the application's next poll or flush."""
        raise create_exception(*self.error, fatal=True)

    def _begin_call(self, name: str, timeout_s: float, *states: State) -> float:
        """The deadline of a transactional call; KafkaException when it may not be called now."""
        if self.transactional_id is None:
            raise create_exception(KafkaError._NOT_CONFIGURED, "The Transactional API requires transactional.id to be configured")
        if self.call and self.call != name:
            raise create_exception(KafkaError._CONFLICT, f"Conflicting {self.call} API call is already in progress", retriable=True)
        if self.state not in states:
            raise self._wrong_state()
        self.call = name
        return self.schedule.now + (timeout_s if timeout_s >= 0 else FOREVER_S)

    def _wrong_state(self, text: str = "") -> KafkaException:
        """As librdkafka says it; the call is over."""
        self.call = ""
        code, reason = self.error
        if self.state == "FatalError":
            return create_exception(code, text or reason, fatal=True)
        if self.state == "AbortableError":
            return create_exception(code, text or reason, aborts=True)
        return create_exception(KafkaError._STATE, f"Operation not valid in state {self.state}")

    @staticmethod
    def _timed_out(text: str = "Timed out waiting for operation to finish, retry call to resume") -> KafkaException:
        return create_exception(KafkaError._TIMED_OUT, text, retriable=True)
