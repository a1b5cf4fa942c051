"""A destination outside of Kafka as the loop sees it: the records of a round are kept until its
store (`deduplicator.own_destination`) commits them together with the positions. Then the group's
offsets are committed, which repeat what is stored.

If the latter fails, the positions are read again as after any failure, are found to be ahead of the
group's, and are committed for the group once more. With `destination.guarantee=at-least-once` the
group's offsets are the only ones: then the round is stored once more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from confluent_kafka import TopicPartition as ClientTopicPartition

from common import failpoints
from common.errors import ReoError, StageFailed
from common.metrics import TRANSACTIONS
from common.routes import Route, TopicPartition, name_some
from deduplicator.destination import Output
from deduplicator.own_destination import (
    NotOwner,
    Position,
    StoreClient,
    StoredRecord,
    Unavailable,
)
from deduplicator.transactions.transaction_failures import TransactionFailed
from deduplicator.unwrap import AcceptedEnvelope, Record


class StoredDestination:
    """Keeps the records of a round until the store commits them."""

    can_forward = False

    def __init__(
        self,
        client: StoreClient,
        commit_for_group: Callable[[Sequence[ClientTopicPartition]], None],
    ) -> None:
        self.client = client
        self.commit_for_group = commit_for_group
        self._records: list[StoredRecord] = []
        self._offsets: Sequence[ClientTopicPartition] = ()

    def begin(self) -> None:
        """Nothing is open while records are decided."""
        self._records = []

    def write(
        self,
        tp: TopicPartition,
        records: Sequence[Record],
        source: TopicPartition,
        source_offsets: Sequence[int],
        output: Output,
    ) -> Output:
        """Keep the records for the commit."""
        self._records += [
            StoredRecord(*tp, *source, offset, key, value, headers or [], timestamp_ms)
            for (key, value, headers, timestamp_ms), offset in zip(
                records, source_offsets, strict=True
            )
        ]
        return output._replace(known_offset=source_offsets[-1])

    def forward(
        self,
        tp: TopicPartition,
        envelopes: Sequence[AcceptedEnvelope],  # noqa: ARG002
        zero_timestamp_ms: int | None,  # noqa: ARG002
    ) -> int:
        """Never called: a store needs the records one by one."""
        raise RuntimeError(f"envelopes cannot be forwarded to {tp}")

    def send_offsets(
        self,
        offsets: Sequence[ClientTopicPartition],
        member: Any,  # noqa: ARG002 the store knows who owns a partition
    ) -> Mapping[TopicPartition, int]:
        """Keep the offsets for the commit."""
        self._offsets = offsets
        return {}

    def start_commit(self) -> None:
        """One step of the store; then the group's commits. StageFailed, TransactionFailed when the
        outcome is unknown, or an error of the store's.
        """
        positions = {
            TopicPartition(tp.topic, tp.partition): Position(tp.offset, str(tp.metadata))
            for tp in self._offsets
        }
        try:
            self.client.store.commit(self._records, positions)
        except NotOwner as error:
            TRANSACTIONS.labels("aborted").inc()
            raise StageFailed(
                f"another worker has taken {name_some(sorted(positions))} over: {error}"
            ) from None
        except Unavailable as error:
            TRANSACTIONS.labels("unknown").inc()
            self.client.has_answered = False
            raise TransactionFailed(f"committing to {self.client.name}: {error}") from None
        except ReoError:
            TRANSACTIONS.labels("aborted").inc()
            raise
        failpoints.hit("two: committed")  # the group does not know it yet
        TRANSACTIONS.labels("committed").inc()
        self.commit_for_group(self._offsets)

    def finish_commit(self) -> None:
        """Nothing to do: `start_commit` has waited."""

    def abort(self) -> None:
        """Nothing is open outside `commit`."""
        self._records = []

    def resolve_in_doubt(self) -> None:
        """Nothing to do: the positions show the outcome of a commit in doubt."""

    def check_for_loss(
        self, topic_ids: Mapping[str, str], last_offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Nothing to do: each start checks it."""

    def check_batches(self, routes: Collection[Route]) -> None:
        """Nothing to do: the store learns of them when their first partition is taken over."""

    def is_answering(self) -> bool:
        """Whether the store's server answers."""
        return self.client.is_answering()

    def close(self) -> None:
        """Close the store."""
        self.client.close()
