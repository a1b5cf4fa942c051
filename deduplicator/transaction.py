"""Two transactional producers, used in turn, and what is certain about a transaction after each failure.

Why two: right after a commit is answered the coordinator still writes the markers; a producer that begins its next
transaction then is refused and waits 20-100 ms. The other one begins at once. A transaction is begun only after the one
before it is **known** to be committed, so commits stay in order.

The lifecycle of one producer is the table `NEXT`. An event that the table does not have is a defect of ours and raises.
After a failure there are two cases only:

- the client says that the transaction must be aborted, and the abort is answered: nothing of it became visible;
- anything else (a time-out, a lost connection, a failed abort): the outcome is **in doubt**. The producer is thrown away and
  made again: `init_transactions` finishes or aborts what its predecessor left and takes a new producer epoch, after which a
  late EndTxn of the old one is refused. librdkafka speaks transactions v1, in which it could otherwise end the *next*
  transaction (KIP-890).

A connection that is lost on the way is repaired inside librdkafka, which sends its request again; the call succeeds, and the first copy may
still arrive. So a producer that lost anything during its transaction is thrown away too, after its certain commit or abort.

Either way the caller reads the committed frontier again and goes on from there: `TransactionFailed`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from common import machine
from common.errors import AccessRefused, ClusterUnreachable, HangingTransaction, ReoError, StageFailed, Stop
from common.kafka_clients import REQUEST_TIMEOUT_S, translate
from common.metrics import TRANSACTION_ERRORS, TRANSACTIONS
from common.pulse import Pulse

log = logging.getLogger(__name__)
STEP_S = 5.0
"""A call that may rightly last longer is made in parts of this length (librdkafka goes on with it when it is called again): between them it is said that
the destination is waited for, and that this process lives. Far below what the watchdog allows (`reo.health.SILENT_S`)."""
TIMEOUT_SHARE = 0.9
"""The part of the time-out in which a transaction has to be over. Beyond the whole of it the coordinator aborts it and fences the producer, which ends this
process; and the next one would begin with as large a transaction, since `deduplicator.transaction_size` is forgotten."""

State = Literal["new", "ready", "open", "prepared"]
Event = Literal["initialised", "begun", "offsets sent", "committed", "aborted", "in doubt"]
NEXT: dict[tuple[State, Event], State] = {
    ("new", "initialised"): "ready",
    ("ready", "begun"): "open",
    ("open", "offsets sent"): "prepared",
    ("prepared", "committed"): "ready",
    ("open", "aborted"): "ready",
    ("prepared", "aborted"): "ready",
    ("new", "in doubt"): "new",
    ("ready", "in doubt"): "new",
    ("open", "in doubt"): "new",
    ("prepared", "in doubt"): "new",
}


def after(state: State, event: Event) -> State:
    """The state that follows; StageFailed when the table does not know the event there."""
    if (state, event) not in NEXT:
        raise StageFailed(f"a producer that is {state!r} cannot take {event!r}: a defect in the loop")
    return NEXT[state, event]


class TransactionFailed(Exception):
    """Nothing of the transaction may be taken as committed or as aborted: read the frontier again."""


class TransactionalProducer:
    """One producer and its place in the lifecycle."""

    def __init__(self, make: Callable[[], Producer], timeout_s: float, pulse: Pulse, count_lost: Callable[[Producer], int] = lambda _: 0,
                 clock: Callable[[], float] = machine.monotonic) -> None:
        self.clock = clock
        self.make = make
        self.timeout_s = timeout_s
        self.pulse = pulse
        self.count_lost = count_lost
        """How many connections and answers its clients have lost."""
        self.lost_at_begin = 0
        self.deadline = 0.0
        """When the open transaction has to be over."""
        self.state: State = "new"
        self.client: Producer | None = None

    def initialise(self) -> None:
        """Make the client and have the coordinator end what a predecessor left; waits as long as the cluster is silent."""
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
        return self._call("begun", "beginning a transaction", lambda client, _: client.begin_transaction())

    def send_offsets(self, offsets: Sequence[TopicPartition], member: Any) -> None:
        """Put the group's offsets, with the frontier in their metadata, into the transaction: the last thing before the commit."""
        self._call("offsets sent", "sending offsets to the transaction",
                   lambda client, seconds: client.send_offsets_to_transaction(list(offsets), member, seconds))

    def flush(self) -> None:
        """Wait until each record was delivered or refused, and its report was handed out. The commit would wait as long, and says what was refused."""
        assert self.client is not None
        deadline = min(self.deadline, self.clock() + self.timeout_s)
        while left := self._flush(max(0.1, min(STEP_S, deadline - self.clock()))):
            if self.clock() >= deadline:
                timed_out = KafkaError(KafkaError._TIMED_OUT, f"{left} records or reports are outstanding")
                raise self.handle_failure(KafkaException(timed_out), "writing the records")
            self.pulse.wait("destination")
        self.pulse.beat()

    def _flush(self, seconds: float) -> int:
        """How many are outstanding. A fatal error is raised here too; beside a delivery report it is a SystemError of Python (confluent-kafka 2.16)."""
        assert self.client is not None
        try:
            return self.client.flush(seconds)
        except (KafkaException, SystemError) as raised:
            failed = raised if isinstance(raised, KafkaException) else raised.__cause__ or raised.__context__
            if not isinstance(failed, KafkaException):
                raise
            raise self.handle_failure(failed, "writing the records") from None

    def commit(self) -> None:
        """Commit; returns only when the coordinator has answered that it is done."""
        self._call("committed", "committing the transaction", lambda client, seconds: client.commit_transaction(seconds))
        TRANSACTIONS.labels("committed").inc()
        self._discard_if_connection_lost()

    def check_deadline(self, doing: str) -> None:
        """A part of the transaction was written; TransactionFailed when its time is over."""
        self.pulse.beat()
        if self.clock() > self.deadline:
            if not self.abort():
                self.discard()
            raise TransactionFailed(f"{doing}: the transaction is not over after {TIMEOUT_SHARE * self.timeout_s:.0f} s, and "
                                    f"deduplicator.transaction_timeout_ms is {1000 * self.timeout_s:.0f}")

    def _call(self, event: Event, doing: str, call: Callable[[Producer, float], None]) -> Producer:
        client = self.client
        assert client is not None
        following = after(self.state, event)
        try:
            self._call_in_steps(call, min(self.deadline, self.clock() + self.timeout_s))
        except KafkaException as failed:
            raise self.handle_failure(failed, doing) from None
        self.state = following
        return client

    def _call_in_steps(self, call: Callable[[Producer, float], None], deadline: float) -> None:
        """Call again and again as long as all that is wrong is that it is not done yet; KafkaException otherwise, or when the time is over."""
        assert self.client is not None
        while True:
            left_s = deadline - self.clock()
            try:
                call(self.client, max(0.1, min(STEP_S, left_s)))
            except KafkaException as failed:
                error = failed.args[0]
                if error.code() != KafkaError._TIMED_OUT or not error.retriable() or left_s <= STEP_S:
                    raise
                self.pulse.wait("destination")
            else:
                self.pulse.beat()
                return

    def handle_failure(self, failure: KafkaException, doing: str) -> Exception:
        """Abort or throw away; returns what to raise: TransactionFailed, or an error that ends the process."""
        error = failure.args[0]
        typed = translate(error, doing)
        TRANSACTION_ERRORS.labels(error.name()).inc()
        log.warning("%s failed: %s", doing, error.str(), extra={"facts": {"error": error.name(), "fatal": error.fatal()}})
        if error.fatal():
            self.discard()
            return typed if isinstance(typed, AccessRefused) or not isinstance(typed, Stop) else StageFailed(str(typed))
        if not (error.txn_requires_abort() and self.abort()):
            self.discard()
        if error.code() == KafkaError._UNKNOWN_PARTITION:  # the client has not heard yet that the topic has grown; the one after it asks
            return TransactionFailed(str(typed))
        if isinstance(typed, ReoError) and isinstance(typed, Stop) and not isinstance(typed, ClusterUnreachable | HangingTransaction):
            return typed
        return TransactionFailed(str(typed))

    def abort(self) -> bool:
        """Abort an open transaction; True when the coordinator has confirmed it, or nothing was open."""
        if self.state not in ("open", "prepared"):
            return True
        assert self.client is not None
        try:
            self._call_in_steps(lambda client, seconds: client.abort_transaction(seconds), self.clock() + self.timeout_s)
        except KafkaException as failed:
            log.warning("the abort is in doubt: %s", failed.args[0].str())
            return False
        self.state = after(self.state, "aborted")
        TRANSACTIONS.labels("aborted").inc()
        self._discard_if_connection_lost()
        return True

    def _discard_if_connection_lost(self) -> None:
        """Use the producer again only if nothing of its transaction can still be on the way."""
        assert self.client is not None
        if self.count_lost(self.client) != self.lost_at_begin:
            log.warning("the transaction is decided, but a connection was lost meanwhile: the producer is replaced")
            self.discard()

    def discard(self) -> None:
        """Forget the client; the next `begin` makes a new one, which fences this one."""
        self.state = after(self.state, "in doubt")
        TRANSACTIONS.labels("unknown").inc()
        if self.client is not None:
            self.client.purge()
            self.client = None


class ProducerPair:
    """The two producers; `current` is the one whose transaction is, or was last, open."""

    def __init__(self, first: TransactionalProducer, second: TransactionalProducer) -> None:
        self.producers = (first, second)
        self.turn = 0

    @property
    def current(self) -> TransactionalProducer:
        """The producer of the transaction at hand."""
        return self.producers[self.turn]

    def initialise(self) -> None:
        """Initialise both: only then is every transaction of a predecessor ended."""
        for producer in self.producers:
            producer.initialise()

    def begin(self) -> Producer:
        """Begin the next transaction; the one before it must have been committed, aborted or thrown away."""
        if self.current.state in ("open", "prepared"):
            raise StageFailed("a transaction was begun while another is open: a defect in the loop")
        self.turn = 1 - self.turn
        return self.current.begin()

    def close(self) -> None:
        """Leave no transaction open."""
        for producer in self.producers:
            producer.abort()
