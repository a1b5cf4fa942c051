"""`commit_transaction` in a thread of its own: the next transaction is filled meanwhile.

It is called once for each transaction, with all the time that is left. librdkafka offers another
way, a call that times out at once and is repeated for the answer, but does not keep the results of
two such calls apart: when the first one ends before librdkafka's own thread has begun with it, the
second one can take its result for the answer, reports `_STATE`, and the late answer to EndTxn ends
the process (`rd_kafka_txn_set_state`, an assertion; seen with librdkafka 2.16.0).
"""

from __future__ import annotations

from confluent_kafka import Producer

from common import runtime


class CommitCall:
    """One call; until it is over, nobody else may use the producer."""

    def __init__(self, client: Producer, seconds: float) -> None:
        self.client = client
        self.seconds = seconds
        self.is_over = runtime.create_event()
        self.failure: BaseException | None = None
        """What the call has raised."""
        runtime.start_thread(self._call, "commit")

    def _call(self) -> None:
        try:
            self.client.commit_transaction(self.seconds)
        except BaseException as failed:  # raised where the answer is waited for
            self.failure = failed
        finally:
            self.is_over.set()
