"""Two transactional producers, used in turn, and what is certain about a transaction after each
failure.

Why two: right after a commit is answered, the coordinator still writes the markers; a producer that
then begins its next transaction is refused and waits 20-100 ms. The other one begins at once, also
while the first one's commit is not answered yet. A commit starts only after the one before it is
**known** to be done, so commits stay in order, and what was written on top of a transaction that
failed is aborted.

The lifecycle of one producer is the table `NEXT`. An event that is not in the table is a defect of
reo and raises. After a failure there are only two cases:

- the client says that the transaction must be aborted, and the abort is answered: none of its
  records became visible;
- anything else (a time-out, a lost connection, a failed abort): the outcome is **in doubt**. The
  producer is discarded and created again: `init_transactions` completes or aborts its predecessor's
  transaction and gets a new producer epoch, after which a late EndTxn of the old producer is
  refused. librdkafka uses transactions v1, in which it could otherwise end the *next* transaction
  (KIP-890).

If a connection is lost during a call, librdkafka reconnects and sends its request again. The call
succeeds, and the first request may still arrive. So a producer that lost a connection during its
transaction is discarded too, after the commit or abort is certain. In both cases the caller reads
the committed frontier again and continues from it: `TransactionFailed`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from common import runtime
from common.errors import (
    AccessRefused,
    ClusterUnreachable,
    HangingTransaction,
    ReoError,
    StageFailed,
    Stop,
)
from common.kafka.client_errors import translate
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S
from common.metrics import TRANSACTION_ERRORS, TRANSACTIONS
from common.pulse import Pulse

log = logging.getLogger(__name__)
STEP_S = 5.0
"""A longer call is split into calls of this length (librdkafka continues when it is called again).
Between them the process reports that it waits for the destination, and that it is alive. Far below
the watchdog's limit (`reo.service.health.SILENT_S`).
"""
TIMEOUT_SHARE = 0.9
"""The share of the time-out after which a transaction has to be over. After the whole of it the
coordinator fences the producer, which ends this process; and the next one would begin with as large
a transaction, since `deduplicator.transaction_size` starts anew.
"""

START_S = 0.002
"""For how long `start_commit` calls the client, which has to take the request over only."""
State = Literal["new", "ready", "open", "prepared", "committing"]
Event = Literal[
    "initialised", "begun", "offsets sent", "commit sent", "committed", "aborted", "in doubt"
]
NEXT: dict[tuple[State, Event], State] = {
    ("new", "initialised"): "ready",
    ("ready", "begun"): "open",
    ("open", "offsets sent"): "prepared",
    ("prepared", "commit sent"): "committing",
    ("committing", "committed"): "ready",
    ("open", "aborted"): "ready",
    ("prepared", "aborted"): "ready",
    ("committing", "aborted"): "ready",
    ("new", "in doubt"): "new",
    ("ready", "in doubt"): "new",
    ("open", "in doubt"): "new",
    ("prepared", "in doubt"): "new",
    ("committing", "in doubt"): "new",
}


def after(state: State, event: Event) -> State:
    """The next state; StageFailed when the table does not have the event in this state."""
    if (state, event) not in NEXT:
        raise StageFailed(
            f"a producer that is {state!r} cannot take {event!r}: a defect in the loop"
        )
    return NEXT[state, event]


def is_unfinished(error: KafkaError) -> bool:
    """Whether the only error of a call is that its time was over: the client goes on with it, and
    takes the same call again.
    """
    return error.code() == KafkaError._TIMED_OUT and error.retriable()


class TransactionFailed(Exception):
    """The transaction may be committed or aborted, so read the frontier again."""


class TransactionalProducer:
    """One producer and its state in the lifecycle."""

    def __init__(
        self,
        make: Callable[[], Producer],
        timeout_s: float,
        pulse: Pulse,
        count_lost: Callable[[Producer], int] = lambda _: 0,
        clock: Callable[[], float] = runtime.monotonic,
    ) -> None:
        self.clock = clock
        self.make = make
        self.timeout_s = timeout_s
        self.pulse = pulse
        self.count_lost = count_lost  # connections and responses that its clients have lost
        self.lost_at_begin = 0
        self.deadline = 0.0
        """When the open transaction has to be over."""
        self.state: State = "new"
        self.client: Producer | None = None

    def initialise(self) -> None:
        """Create the client and have the coordinator end a predecessor's transaction; waits while
        the cluster does not answer.
        """
        while self.state == "new":
            self.pulse.beat()
            self.client = self.client or self.make()
            try:
                self.client.init_transactions(REQUEST_TIMEOUT_S)
                self.state = after(self.state, "initialised")
            except KafkaException as failed:
                error = failed.args[0]
                if not (error.retriable() or isinstance(translate(error, ""), ClusterUnreachable)):
                    raise translate(error, "initialising a transactional producer") from None
                log.warning("the transaction coordinator does not answer yet: %s", error.str())
                self.pulse.wait("destination")

    def begin(self) -> Producer:
        """Open a transaction and return the client to produce with."""
        self.initialise()
        assert self.client is not None
        self.lost_at_begin = self.count_lost(self.client)
        self.deadline = self.clock() + TIMEOUT_SHARE * self.timeout_s
        return self._call(
            "begun", "beginning a transaction", lambda client, _: client.begin_transaction()
        )

    def send_offsets(self, offsets: Sequence[TopicPartition], member: Any) -> None:
        """Put the group's offsets, with the frontier in their metadata, into the transaction: the
        last thing before the commit.
        """
        self._call(
            "offsets sent",
            "sending offsets to the transaction",
            lambda client, seconds: client.send_offsets_to_transaction(
                list(offsets), member, seconds
            ),
        )

    def flush(self) -> None:
        """Wait until each record is delivered or refused, and its delivery report is served. The
        commit would wait as long, and reports the refused records.
        """
        assert self.client is not None
        deadline = min(self.deadline, self.clock() + self.timeout_s)
        while outstanding := self._flush(max(0.1, min(STEP_S, deadline - self.clock()))):
            if self.clock() >= deadline:
                raise self.handle_failure(
                    KafkaException(
                        KafkaError(KafkaError._TIMED_OUT, f"{outstanding} are outstanding")
                    ),
                    "writing the records",
                )
            self.pulse.wait("destination")
        self.pulse.beat()

    def _flush(self, seconds: float) -> int:
        """How many are outstanding. A fatal error is raised here too; together with a delivery
        report it is a SystemError (confluent-kafka 2.16).
        """
        assert self.client is not None
        try:
            return self.client.flush(seconds)
        except (KafkaException, SystemError) as raised:
            failed = (
                raised
                if isinstance(raised, KafkaException)
                else raised.__cause__ or raised.__context__
            )
            if not isinstance(failed, KafkaException):
                raise
            raise self.handle_failure(failed, "writing the records") from None

    def commit(self) -> None:
        """Commit, and wait until it is known to be done."""
        self.start_commit()
        self.finish_commit()

    def start_commit(self) -> None:
        """Send EndTxn; `finish_commit` waits for the answer. librdkafka goes on with a commit whose
        call has timed out; the next call collects the answer.
        """
        assert self.client is not None
        self.state = after(self.state, "commit sent")
        try:
            self.client.commit_transaction(START_S)
        except KafkaException as failed:
            if not is_unfinished(failed.args[0]):
                raise self.handle_failure(failed, "committing the transaction") from None
            self.pulse.beat()
        else:
            self.state = after(self.state, "committed")
            self._on_committed()

    def finish_commit(self) -> None:
        """Wait until the commit that was started, if any, is known to be done."""
        if self.state == "committing":
            self._call(
                "committed",
                "committing the transaction",
                lambda client, seconds: client.commit_transaction(seconds),
            )
            self._on_committed()

    def _on_committed(self) -> None:
        TRANSACTIONS.labels("committed").inc()
        self._discard_if_connection_lost()

    def check_deadline(self, operation: str) -> None:
        """Called after each part of the transaction; TransactionFailed when its time is over."""
        self.pulse.beat()
        if self.clock() > self.deadline:
            if not self.abort():
                self.discard()
            raise TransactionFailed(
                f"{operation}: the transaction is not over after"
                f" {TIMEOUT_SHARE * self.timeout_s:.0f} s, and deduplicator.transaction_timeout_ms"
                f" is {1000 * self.timeout_s:.0f}"
            )

    def _call(
        self, event: Event, operation: str, call: Callable[[Producer, float], None]
    ) -> Producer:
        client = self.client
        assert client is not None
        next_state = after(self.state, event)
        try:
            self._call_in_steps(call, min(self.deadline, self.clock() + self.timeout_s))
        except KafkaException as failed:
            raise self.handle_failure(failed, operation) from None
        self.state = next_state
        return client

    def _call_in_steps(self, call: Callable[[Producer, float], None], deadline: float) -> None:
        """Call again while the only error is that the call is not done yet; KafkaException for
        other errors, or when the time is over.
        """
        assert self.client is not None
        while True:
            left_s = deadline - self.clock()
            try:
                call(self.client, max(0.1, min(STEP_S, left_s)))
            except KafkaException as failed:
                if not is_unfinished(failed.args[0]) or left_s <= STEP_S:
                    raise
                self.pulse.wait("destination")
            else:
                self.pulse.beat()
                return

    def handle_failure(self, failure: KafkaException, operation: str) -> Exception:
        """Abort or discard; returns the error to raise: TransactionFailed, or one that ends the
        process.
        """
        error = failure.args[0]
        translated = translate(error, operation)
        TRANSACTION_ERRORS.labels(error.name()).inc()
        log.warning(
            "%s failed: %s",
            operation,
            error.str(),
            extra={"facts": {"error": error.name(), "fatal": error.fatal()}},
        )
        if error.fatal():
            self.discard()
            return (
                translated
                if isinstance(translated, AccessRefused) or not isinstance(translated, Stop)
                else StageFailed(str(translated))
            )
        if not (error.txn_requires_abort() and self.abort()):
            self.discard()
        # the client does not know yet that the topic has more partitions; a new client reads its
        # metadata
        if error.code() == KafkaError._UNKNOWN_PARTITION:
            return TransactionFailed(str(translated))
        if (
            isinstance(translated, ReoError)
            and isinstance(translated, Stop)
            and not isinstance(translated, ClusterUnreachable | HangingTransaction)
        ):
            return translated
        return TransactionFailed(str(translated))

    def abort(self) -> bool:
        """Abort an open transaction; True when the coordinator has confirmed it, or nothing was
        open.
        """
        if self.state not in ("open", "prepared", "committing"):
            return True
        assert self.client is not None
        try:
            self._call_in_steps(
                lambda client, seconds: client.abort_transaction(seconds),
                self.clock() + self.timeout_s,
            )
        except KafkaException as failed:
            log.warning("the abort is in doubt: %s", failed.args[0].str())
            return False
        self.state = after(self.state, "aborted")
        TRANSACTIONS.labels("aborted").inc()
        self._discard_if_connection_lost()
        return True

    def _discard_if_connection_lost(self) -> None:
        """Use the producer again only if no request of its transaction can still arrive."""
        assert self.client is not None
        if self.count_lost(self.client) != self.lost_at_begin:
            log.warning(
                "the transaction is decided, but a connection was lost meanwhile: the producer is"
                " replaced"
            )
            self.discard()

    def discard(self) -> None:
        """Forget the client; the next `begin` creates a new one, which fences this one."""
        self.state = after(self.state, "in doubt")
        TRANSACTIONS.labels("unknown").inc()
        if self.client is not None:
            self.client.purge()
            self.client = None


class ProducerPair:
    """The two producers, used in turn; `current` has the open transaction, or had the last one."""

    def __init__(self, first: TransactionalProducer, second: TransactionalProducer) -> None:
        self.producers = (first, second)
        self.turn = 0

    @property
    def current(self) -> TransactionalProducer:
        """The producer of the current transaction."""
        return self.producers[self.turn]

    def initialise(self) -> None:
        """Initialise both: only then are all transactions of a predecessor ended."""
        for producer in self.producers:
            producer.initialise()

    def begin(self) -> Producer:
        """Begin the next transaction; the one before it must be committed, aborted or discarded, or
        its commit must have started.
        """
        if self.current.state in ("open", "prepared"):
            raise StageFailed("a transaction was begun while another is open: a defect in the loop")
        self.turn = 1 - self.turn
        return self.current.begin()

    def start_commit(self) -> None:
        """Start the current transaction's commit; the one before it must be known to be done."""
        if any(producer.state == "committing" for producer in self.producers):
            raise StageFailed(
                "a commit was started before the last one was known to be done: a defect in the"
                " loop"
            )
        self.current.start_commit()

    def finish_commit(self) -> None:
        """Wait for the commit that was started, if there is one."""
        for producer in self.producers:
            producer.finish_commit()

    def close(self) -> None:
        """Leave no transaction open: a commit that was started is waited for, any other transaction
        is aborted.
        """
        try:
            self.finish_commit()
        # the outcome is in doubt; the next process initialises this producer, which ends its
        # transaction
        except Exception as failed:
            log.warning("a commit is not known to be done: %s", failed)
        for producer in self.producers:
            producer.abort()
