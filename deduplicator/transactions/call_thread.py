"""A call of a transactional producer in a thread of its own, because librdkafka (2.16) has no other
way to go on meanwhile, or to give it up.

A commit (`Producer.commit_transaction`): the next transaction is filled meanwhile. A call that
times out at once and is repeated for the answer does not do: librdkafka does not keep the results
of two such calls apart. When the first one ends before librdkafka's own thread has begun with it,
the second one can take its result for the answer, reports `_STATE`, and the late answer to EndTxn
ends the process (`rd_kafka_txn_set_state`, an assertion; seen with librdkafka 2.16.0).

Offsets (`Producer.send_offsets_to_transaction`): the call does not return at its timeout, but
never, when the client has forgotten the group's coordinator (issue 5511;
`common.kafka.coordinator_client`).
"""

from __future__ import annotations

from collections.abc import Callable

from common import clock


class CallThread:
    """One call; until it is over, nobody else may use the producer."""

    def __init__(self, call: Callable[[], object], name: str) -> None:
        self.call = call
        self.is_over = clock.create_event()
        self.failure: BaseException | None = None
        """What the call has raised."""
        clock.start_thread(self._call, name)

    def _call(self) -> None:
        try:
            self.call()
        except BaseException as failed:  # raised where the answer is waited for
            self.failure = failed
        finally:
            self.is_over.set()
