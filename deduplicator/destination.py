"""The destination: where accepted records go, in the same transaction as the frontier.

`Destination` is the only interface that the loop uses. It gets records one by one (`write`), or,
where it can take them so, in the envelopes in which they were consumed (`forward`). Topics are
`deduplicator.kafka_destination`, everything else is `deduplicator.stored_destination`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from confluent_kafka import TopicPartition as ClientTopicPartition

from common.routes import Route, TopicPartition
from deduplicator.unwrap import AcceptedEnvelope, Record


class Output(NamedTuple):
    """What is known of a destination partition: the visible records after `known_offset` are
    exactly the `sent` ones. Outside of Kafka, `known_offset` is the source offset of the last
    record, and `sent` is 0.
    """

    known_offset: int
    sent: int
    is_known_written: bool = False
    """Whether the record at `known_offset` is one of this copy."""

    @property
    def last_offset(self) -> int:
        """The lowest offset that the last of these records can have: each has its own, and
        transaction markers have offsets too.
        """
        return self.known_offset + self.sent


UNCOUNTED = Output(-1, -1)
"""For a route that is not one to one: other routes write to the partition too, so a count proves
nothing.
"""


class Destination(Protocol):
    """One transaction after the other: begin, write, send_offsets, start_commit, finish_commit;
    `abort` after a failure of the caller.

    The next one may be filled, and its offsets sent, while a commit is not finished; its commit is
    started when the one before it is finished.
    """

    @property
    def can_forward(self) -> bool:
        """Whether it takes whole envelopes."""

    def begin(self) -> None:
        """Open a transaction."""

    def write(
        self,
        tp: TopicPartition,
        records: Sequence[Record],
        source: TopicPartition,
        source_offsets: Sequence[int],
        output: Output,
    ) -> Output:
        """Write records of a source partition in order to one partition, in the open transaction;
        returns `output` with them. Parked records come without their source offsets.
        """

    def forward(
        self,
        tp: TopicPartition,
        envelopes: Sequence[AcceptedEnvelope],
        zero_timestamp_ms: int | None,
    ) -> int:
        """Write the new records of these envelopes in order to one partition, in the open
        transaction; how many these are. Only if `can_forward`.
        """

    def send_offsets(
        self, offsets: Sequence[ClientTopicPartition], member: Any
    ) -> Mapping[TopicPartition, int]:
        """Put the offsets and their metadata into the transaction, whose records are written;
        returns the offsets of the last records, by destination partition, where they are known.
        """

    def start_commit(self) -> None:
        """Commit the transaction whose offsets are sent; the answer may come later."""

    def finish_commit(self) -> None:
        """Wait until the commit that was started is known to be done; TransactionFailed when it
        failed, or is in doubt. Nothing if none was started.
        """

    def abort(self) -> None:
        """Abort the open transaction, if there is one; not a commit that was started."""

    def resolve_in_doubt(self) -> None:
        """Before the frontier is read: resolve what a failure or a predecessor left in doubt. Waits
        while the destination does not answer.
        """

    def check_for_loss(
        self, topic_ids: Mapping[str, str], last_offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Once a second, between two transactions: DestinationTruncated when written records are
        found to be lost. Does not block.

        `topic_ids` are the ids in the frontiers, by destination topic; `last_offsets` those of the
        outputs that are counted.
        """

    def is_answering(self) -> bool:
        """Whether its server has answered lately, if it is not the cluster of the intermediate
        topics.
        """

    def check_batches(self, routes: Collection[Route]) -> None:
        """StageFailed when the producers' batches do not fit the topics of these routes, which are
        new, or were changed.
        """

    def close(self) -> None:
        """Leave no transaction open."""
