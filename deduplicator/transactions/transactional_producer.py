"""A transactional producer, and what is certain about its transaction after each failure.

Its lifecycle is a table (`deduplicator.transactions.producer_states`). After a failure there are
only two cases:

- the client says that the transaction must be aborted, and the abort is answered: none of its
  records became visible;
- anything else (a timeout, a lost connection, a failed abort): the outcome is **in doubt**. The
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
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from common import clock
from common.errors import ClusterUnreachable, TopicMissing
from common.kafka import partition_offsets
from common.kafka.client_errors import find_client_failure, translate
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S
from common.liveness import Liveness
from common.metrics import TRANSACTION_ERRORS, TRANSACTIONS
from deduplicator.transactions.call_thread import CallThread
from deduplicator.transactions.producer_states import State, get_next_state
from deduplicator.transactions.transaction_failures import (
    TransactionFailed,
    classify_fatal,
    classify_undone,
    is_fatal,
    is_unfinished,
)

log = logging.getLogger(__name__)
STEP_S = 5.0
"""A longer call is split into calls of this length (librdkafka continues when it is called again).
Between them the process reports that it waits for the destination, and that it is alive. Far below
the watchdog's limit (`common.liveness.SILENT_S`).
"""
TIMEOUT_SHARE = 0.9
"""The share of the timeout after which a transaction has to be over. After the whole of it the
coordinator fences the producer, which ends this process; and the next one would begin with as large
a transaction, since `deduplicator.transactions.transaction_limits` starts anew.
"""


class TransactionalProducer:
    """One producer and its state in the lifecycle."""

    def __init__(
        self,
        make: Callable[[], Producer],
        timeout_s: float,
        liveness: Liveness,
        count_lost: Callable[[Producer], int] = lambda _: 0,
    ) -> None:
        self.make = make
        self.timeout_s = timeout_s
        self.liveness = liveness
        self.count_lost = count_lost  # connections and responses that its clients have lost
        self.lost_at_begin = 0
        self.deadline = 0.0
        """When the open transaction has to be over."""
        self.state: State = "new"
        self.client: Producer | None = None
        self.commit_call: CallThread | None = None
        """The last one."""
        self.envelopes: list[bytes] = []
        """What values of its records point into, until each record is delivered or purged."""

    def initialise(self) -> None:
        """Create the client and have the coordinator end a predecessor's transaction; waits while
        the cluster does not answer.
        """
        while self.state == "new":
            self.liveness.beat()
            self.client = self.client or self.make()
            try:
                self.client.init_transactions(REQUEST_TIMEOUT_S)
                self.state = get_next_state(self.state, "initialised")
                self.lost_at_begin = self.count_lost(self.client)
            except KafkaException as failed:
                error = failed.args[0]
                if not (error.retriable() or isinstance(translate(error, ""), ClusterUnreachable)):
                    raise translate(error, "initialising a transactional producer") from None
                log.warning("the transaction coordinator does not answer yet: %s", error.str())
                self.liveness.report_waiting("destination")

    def begin(self) -> Producer:
        """Open a transaction and return the client to produce with: a new one, if the last one has
        lost a connection, and perhaps the group's coordinator, since.
        """
        if self.client and self.count_lost(self.client) != self.lost_at_begin:
            self._forget_client()
        self.initialise()
        assert self.client is not None
        self.deadline = clock.monotonic() + TIMEOUT_SHARE * self.timeout_s
        next_state = get_next_state(self.state, "begun")
        self.envelopes.clear()
        try:
            self.client.begin_transaction()
        except KafkaException as failed:
            raise self.handle_failure(failed, "beginning a transaction") from None
        self.state = next_state
        return self.client

    def send_offsets(self, offsets: Sequence[TopicPartition], member: Any) -> None:
        """Put the group's offsets, with the frontier in their metadata, into the transaction: the
        last thing before the commit.
        """
        client = self.client
        assert client is not None
        next_state = get_next_state(self.state, "offsets sent")
        seconds = max(0.1, min(self.deadline - clock.monotonic(), self.timeout_s))
        deadline = clock.monotonic() + seconds
        try:
            for batch in partition_offsets.split_commit(offsets):
                send = partial(client.send_offsets_to_transaction, list(batch), member, seconds)
                self._wait_for(CallThread(send, "offsets"), deadline)
        except KafkaException as failed:
            error = self.handle_failure(failed, "sending offsets to the transaction")
            # an intermediate topic: the next start of its partitions creates it again
            is_deleted = isinstance(error, TopicMissing)
            raise TransactionFailed(str(error)) if is_deleted else error from None
        self.state = next_state

    def _wait_for(self, call: CallThread, deadline: float = math.inf) -> None:
        """Until the call is over, whose failure is raised. One with a deadline may never return
        once a connection is lost: then it is given up, with KafkaException.
        """
        assert self.client is not None
        while not call.is_over.wait(STEP_S):
            if deadline < math.inf and self.count_lost(self.client) != self.lost_at_begin:
                deadline = min(deadline, clock.monotonic() + STEP_S)
            if clock.monotonic() >= deadline:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))
            self.liveness.report_waiting("destination")
        self.liveness.beat()
        if call.failure:
            raise call.failure

    def flush(self) -> None:
        """Wait until each record is delivered or refused, and its delivery report is served. The
        commit would wait as long, and reports the refused records.
        """
        assert self.client is not None
        deadline = min(self.deadline, clock.monotonic() + self.timeout_s)
        while outstanding := self._flush(max(0.1, min(STEP_S, deadline - clock.monotonic()))):
            if clock.monotonic() >= deadline:
                raise self.handle_failure(
                    KafkaException(
                        KafkaError(KafkaError._TIMED_OUT, f"{outstanding} are outstanding")
                    ),
                    "writing the records",
                )
            self.liveness.report_waiting("destination")
        self.liveness.beat()

    def _flush(self, seconds: float) -> int:
        """How many are outstanding. A fatal error is raised here too; together with a delivery
        report it is a SystemError (confluent-kafka 2.16).
        """
        assert self.client is not None
        try:
            return self.client.flush(seconds)
        except (KafkaException, SystemError) as raised:
            failed = find_client_failure(raised)
            if failed is None:
                raise
            raise self.handle_failure(failed, "writing the records") from None

    def start_commit(self) -> None:
        """Send EndTxn; `finish_commit` waits for the answer.

        After a lost connection the answer is waited for here: until the transaction is over, a
        first copy of its TxnOffsetCommit may arrive. If that came after the next transaction's
        offsets, these would be the older ones, and the group would keep this transaction's.
        """
        assert self.client is not None
        has_resent = self.count_lost(self.client) != self.lost_at_begin
        next_state = get_next_state(self.state, "commit sent")
        left_s = min(self.deadline - clock.monotonic(), self.timeout_s)
        # may fail, before anything is sent: then the transaction is open, and can be aborted
        self.commit_call = CallThread(
            partial(self.client.commit_transaction, max(0.1, left_s)), "commit"
        )
        self.state = next_state
        if has_resent:
            self.finish_commit()

    def finish_commit(self) -> None:
        """Wait until the commit that was started, if any, is known to be done."""
        if self.state != "committing":
            return
        assert self.commit_call is not None
        try:
            self._wait_for(self.commit_call)
        except KafkaException as failed:
            raise self.handle_failure(failed, "committing the transaction") from None
        self.state = get_next_state(self.state, "committed")
        self.envelopes.clear()
        TRANSACTIONS.labels("committed").inc()
        self._discard_if_connection_lost()

    def check_deadline(self, operation: str) -> None:
        """Called after each part of the transaction; TransactionFailed when its time is over."""
        self.liveness.beat()
        if clock.monotonic() > self.deadline:
            if not self.abort():
                self.discard()
            raise TransactionFailed(
                f"{operation}: the transaction is not over after"
                f" {TIMEOUT_SHARE * self.timeout_s:.0f} s, {TIMEOUT_SHARE:.0%} of"
                f" deduplicator.transaction_timeout_ms ({1000 * self.timeout_s:.0f})"
            )

    def _abort_in_steps(self, deadline: float) -> None:
        """Call again while the only error is that the abort is not done yet; KafkaException for
        other errors, or when the time is over.
        """
        assert self.client is not None
        while True:
            left_s = deadline - clock.monotonic()
            try:
                self.client.abort_transaction(max(0.1, min(STEP_S, left_s)))
            except KafkaException as failed:
                if not is_unfinished(failed.args[0]) or left_s <= STEP_S:
                    raise
                self.liveness.report_waiting("destination")
            else:
                self.liveness.beat()
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
        if is_fatal(error, translated):
            self.discard()
            return classify_fatal(translated)
        if not (error.txn_requires_abort() and self.abort()):
            self.discard()
        return classify_undone(error, translated)

    def abort(self) -> bool:
        """Abort an open transaction; True when the coordinator has confirmed it, or nothing was
        open.
        """
        if self.state not in ("open", "offsets sent", "committing"):
            return True
        try:
            self._abort_in_steps(clock.monotonic() + self.timeout_s)
        except KafkaException as failed:
            log.warning("the abort is in doubt: %s", failed.args[0].str())
            return False
        self.state = get_next_state(self.state, "aborted")
        TRANSACTIONS.labels("aborted").inc()
        self._discard_if_connection_lost()
        return True

    def _discard_if_connection_lost(self) -> None:
        """Use the producer again only if no request of its transaction can still arrive."""
        assert self.client is not None
        if self.count_lost(self.client) != self.lost_at_begin:
            log.warning("a connection was lost in a decided transaction: the producer is replaced")
            self.discard()

    def discard(self) -> None:
        """Give the transaction up; the next `begin` creates a new client, which fences this one."""
        TRANSACTIONS.labels("unknown").inc()
        self._forget_client()

    def _forget_client(self) -> None:
        self.state = get_next_state(self.state, "in doubt")
        if self.client is not None:
            self.client.purge()
            self.client = None
