"""Two transactional producers, used in turn.

Why two: right after a commit is answered, the coordinator still writes the markers; a producer that
then begins its next transaction is refused and waits 20-100 ms. The other one begins at once, also
while the first one's commit is not answered yet. A commit starts only after the one before it is
**known** to be done, so commits stay in order, and what was written on top of a transaction that
failed is aborted.
"""

from __future__ import annotations

from confluent_kafka import Producer

from deduplicator.transactions.transactional_producer import TransactionalProducer


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
        if self.current.state in ("open", "offsets sent"):
            raise RuntimeError("a transaction was begun while another is open")
        self.turn = 1 - self.turn
        return self.current.begin()

    def start_commit(self) -> None:
        """Start the current transaction's commit; the one before it must be known to be done."""
        if any(producer.state == "committing" for producer in self.producers):
            raise RuntimeError("a commit was started before the last one was known to be done")
        self.current.start_commit()

    def finish_commit(self) -> None:
        """Wait for the commit that was started, if there is one."""
        for producer in self.producers:
            producer.finish_commit()

    def close(self) -> None:
        """Abort the transaction that is open. No commit is unfinished."""
        for producer in self.producers:
            producer.abort()
