"""What the destinations outside of Kafka share (PostgreSQL, a user's own): records and offsets of a
round are kept until one commit stores both; then the group's offsets are committed, which repeat
what is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from confluent_kafka import TopicPartition as ClientTopicPartition

from common.routes import Route, TopicPartition
from deduplicator.unwrap import AcceptedEnvelope


class StoredDestination:
    """The part of `deduplicator.loop`'s destination that does not depend on the kind of store."""

    def __init__(self, commit_for_group: Callable[[Sequence[ClientTopicPartition]], None]) -> None:
        self.commit_for_group = commit_for_group
        self._offsets: Sequence[ClientTopicPartition] = ()

    can_forward = False

    def forward(
        self,
        tp: TopicPartition,
        envelopes: Sequence[AcceptedEnvelope],  # noqa: ARG002
        zero_timestamp_ms: int | None,  # noqa: ARG002
    ) -> int:
        """Never called: such a store needs the records one by one."""
        raise RuntimeError(f"envelopes cannot be forwarded to {tp}")

    def send_offsets(
        self,
        offsets: Sequence[ClientTopicPartition],
        member: Any,  # noqa: ARG002 the store knows who owns a partition
    ) -> Mapping[TopicPartition, int]:
        """Keep the offsets for the commit."""
        self._offsets = offsets
        return {}

    def finish_commit(self) -> None:
        """Nothing to do: `start_commit` has waited."""

    def check_for_loss(
        self, topic_ids: Mapping[str, str], last_offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Nothing to do: each start checks it, and a table before each commit."""

    def check_batches(self, routes: Collection[Route]) -> None:
        """Nothing to do: the store learns of them when their first partition is taken over."""

    def _list_positions(self) -> dict[TopicPartition, tuple[int, str]]:
        """The kept offsets, each with its frontier."""
        return {
            TopicPartition(tp.topic, tp.partition): (tp.offset, str(tp.metadata))
            for tp in self._offsets
        }
