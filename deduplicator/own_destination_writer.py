"""The records of a round for a user's own destination (`deduplicator.own_destination`): kept until
its store commits them together with the positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from confluent_kafka import TopicPartition as ClientTopicPartition

from common import failpoints
from common.errors import StageFailed
from common.metrics import TRANSACTIONS
from common.routes import TopicPartition
from deduplicator.destination import Output
from deduplicator.frontiers.own_frontier_store import OwnFrontierStore
from deduplicator.own_destination import NotOwner, Position, StoredRecord, Unavailable
from deduplicator.stored_destination import StoredDestination
from deduplicator.transactions.transaction_failures import TransactionFailed
from deduplicator.unwrap import Record


class OwnDestination(StoredDestination):
    """Keeps the records of a round until the user's store commits them."""

    def __init__(
        self,
        frontier_store: OwnFrontierStore,
        commit_for_group: Callable[[Sequence[ClientTopicPartition]], None],
    ) -> None:
        super().__init__(commit_for_group)
        self.frontier_store = frontier_store
        self._records: list[StoredRecord] = []

    def begin(self) -> None:
        """Nothing is open while records are decided."""
        self._records = []

    def write(
        self,
        tp: TopicPartition,
        records: Sequence[Record],
        source_offsets: Sequence[int],
        output: Output,
    ) -> Output:
        """Keep the records for the commit."""
        self._records += [
            StoredRecord(*tp, offset, key, value, list(headers or []), timestamp_ms)
            for (key, value, headers, timestamp_ms), offset in zip(
                records, source_offsets, strict=True
            )
        ]
        return output._replace(known_offset=source_offsets[-1])

    def start_commit(self) -> None:
        """One step of the store; then the group's commits. StageFailed, or TransactionFailed when
        the outcome is unknown.
        """
        positions = {tp: Position(*position) for tp, position in self._list_positions().items()}
        failpoints.hit("two: offsets sent")
        try:
            self.frontier_store.store.commit(self._records, positions)
        except NotOwner as error:
            TRANSACTIONS.labels("aborted").inc()
            raise StageFailed(
                f"another worker has taken {', '.join(map(str, sorted(positions)))} over: {error}"
            ) from None
        except Unavailable as error:
            TRANSACTIONS.labels("unknown").inc()
            self.frontier_store.answers = False
            raise TransactionFailed(
                f"committing to {self.frontier_store.identity}: {error}"
            ) from None
        failpoints.hit("two: committed")  # the group does not know it yet
        TRANSACTIONS.labels("committed").inc()
        self.commit_for_group(self._offsets)

    def abort(self) -> None:
        """Nothing is open outside `commit`."""
        self._records = []

    def resolve_in_doubt(self) -> None:
        """Nothing to do: the next `take_over` returns the outcome of a commit in doubt."""

    def is_answering(self) -> bool:
        """Whether the last call was answered."""
        return self.frontier_store.answers

    def close(self) -> None:
        """Close the store."""
        self.frontier_store.store.close()
