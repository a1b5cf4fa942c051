"""What a round consumes and decides: steps 1 and 2 of `deduplicator.loop`.

An envelope is written as it is, in C, where its records go one to one to Kafka
(`Destination.forward`). Otherwise it is written record by record, and then a round can end in the
middle of it: the frontier is the last record that is written, and the rest is decided in the next
round, as the rule decides any envelope of which a part is copied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial

from common import clock, failpoints, partition_mapping
from common.envelope import EnvelopeRecord, Head
from common.errors import Stop
from common.kafka.intermediate_records import parse_intermediate
from common.liveness import Liveness
from common.records import Consumed
from common.routes import TopicPartition
from common.settings import Settings, destination_kind
from deduplicator.destination import Destination
from deduplicator.intermediate_consumer import Intermediate
from deduplicator.partition import Partition
from deduplicator.partitions import Partitions
from deduplicator.record_filter import RecordFilter
from deduplicator.round_decisions import RoundDecisions
from deduplicator.transactions.transaction_limits import TransactionLimits
from deduplicator.unwrap import AcceptedEnvelope

Undecided = tuple[Partition | None, Consumed]
"""A message, and its partition if this worker has it."""
FEW_RECORDS = 20
"""Decided at once where a user's function sees each record: time is checked in between, and a poll
is due every ten minutes (max.poll.interval.ms).
"""
ENVELOPE_BYTES_MAX = 32 * 2**20
"""How many bytes of envelopes a transaction has: they stay in memory until it is committed."""
UNDECIDED_MAX = 64
"""With each poll, which is due in every round, a message can come, also while rounds are so small,
or a user's function so slow, that a round decides less than one envelope.
"""


class RoundInput:
    """Of one worker."""

    def __init__(
        self,
        settings: Settings,
        partitions: Partitions,
        intermediate: Intermediate,
        destination: Destination,
        liveness: Liveness,
        transaction_limits: TransactionLimits,
        record_filter: RecordFilter | None = None,
    ) -> None:
        self.partitions = partitions
        self.intermediate = intermediate
        self.destination = destination
        self.liveness = liveness
        self.transaction_limits = transaction_limits
        self.record_filter = record_filter
        self.zero_timestamp_ms = destination_kind.get_zero_timestamp_ms(settings)
        functions = [
            rule for rule in settings.rules if partition_mapping.FUNCTION.fullmatch(rule.mapping)
        ]
        self.calls_functions = bool(record_filter or functions)
        self.undecided: deque[Undecided] = deque()
        """Consumed, and not decided yet: nothing of a partition that is revoked meanwhile will
        be.
        """
        self.continued: Undecided | None = None
        """The envelope of which a part is decided: the first of `undecided`."""
        self.deadline = 0.0
        """When the round takes up no more, on the monotonic clock."""

    def consume(self, wait_s: float) -> None:
        """Steps 1 and 2, alternately; waits up to `wait_s` for the first envelope."""
        self._return_undecided()
        records_left, bytes_left = self.transaction_limits.records, ENVELOPE_BYTES_MAX
        self.deadline = clock.monotonic() + self.transaction_limits.consume_seconds_max
        while records_left > 0 and bytes_left > 0:
            # a poll is due in any case, and more are needed only when these are decided
            messages = (
                self.intermediate.consume(0, 1)
                if self.undecided
                else self.intermediate.consume(wait_s)
            )
            assigned = self.partitions.assigned
            self.undecided += [
                (assigned.get(TopicPartition(message.topic(), message.partition())), message)
                for message in messages
            ]
            if not self.undecided:
                return
            wait_s = 0
            failpoints.hit("two: consumed")
            while self.undecided and records_left > 0 and bytes_left > 0:
                undecided = self.undecided.popleft()
                bytes_left -= len(undecided[1].value() or b"")
                try:  # costs nothing, for each envelope
                    records_left -= self.decide(undecided, records_left)
                except Stop as stop:
                    stop.topic = stop.topic or str(undecided[1].topic())
                    raise
                self.liveness.beat()
                if clock.monotonic() > self.deadline:
                    return

    def _return_undecided(self) -> None:
        """Before a round, when they have become too many: the client fetches them again."""
        if len(self.undecided) > UNDECIDED_MAX:
            self.undecided.clear()
            self.intermediate.start_fetching()

    def decide(self, undecided: Undecided, records_max: int) -> int:
        """Step 2 for one message, if its partition was not revoked meanwhile: at most so many
        records, and the rest of the message goes back to `undecided`, or all of it. How many were
        decided; all of them when the round ends here.
        """
        partition, message = undecided
        if partition is None or not partition.is_assigned:
            return 0
        head = parse_intermediate(message, partition.source_tp.partition)
        if head and head.record_count > records_max and self._can_forward(partition, head):
            self.undecided.appendleft(undecided)  # it fits into the next transaction
            return records_max
        decisions = partition.decisions or partition.get_decisions(self.zero_timestamp_ms)
        consumed_before = decisions.consumed
        if head is None:
            decisions.drop_old_format(message)
        elif envelope := decisions.decide(message, head, partition.frontier.source_identity):
            is_continued, self.continued = self.continued is undecided, None
            if not self._add(partition, decisions, envelope, records_max, is_continued):
                self.continued = undecided
                self.undecided.appendleft(undecided)
        return max(1, decisions.consumed - consumed_before)

    def _add(
        self,
        partition: Partition,
        decisions: RoundDecisions,
        envelope: AcceptedEnvelope,
        records_max: int,
        is_continued: bool,
    ) -> bool:
        """Add an accepted envelope to what the round writes, or so many of its records; whether it
        is added to its end.
        """
        can_forward = self._can_forward(partition, envelope.head)
        if can_forward and not decisions.records and not is_continued:
            decisions.add_envelope(envelope)
            return True
        new = envelope.read_records()
        if not is_continued:
            decisions.count_duplicates(envelope.head.record_count - len(new))
        end = self._add_records(partition, decisions, envelope, new[:records_max])
        if end < len(new):
            decisions.stop_before_end(envelope, new[end - 1].source_offset)
        return end >= len(new)

    def _add_records(
        self,
        partition: Partition,
        decisions: RoundDecisions,
        envelope: AcceptedEnvelope,
        new: Sequence[EnvelopeRecord],
    ) -> int:
        """Add records of an accepted envelope one by one until the round's time is over, and at
        least a few; how many were added.
        """
        filter_records = (
            partial(self.record_filter.filter_records, partition.source_tp)
            if self.record_filter
            else None
        )
        step = FEW_RECORDS if self.calls_functions else max(1, len(new))
        for begin in range(0, max(1, len(new)), step):
            records = decisions.add_records(envelope, new[begin : begin + step], filter_records)
            if partition.partitioner:
                decisions.partitioned_records += partition.partitioner(records)
            self.liveness.beat()
            if clock.monotonic() > self.deadline:
                return min(len(new), begin + step)
        return len(new)

    def _can_forward(self, partition: Partition, head: Head) -> bool:
        """Whether an envelope can be written as it is. Not where a transaction has to end in the
        middle of it.
        """
        return (
            self.destination.can_forward
            and self.record_filter is None
            and partition.partitioner is None
            and partition.surplus is None
            and self.transaction_limits.records == self.transaction_limits.records_max
            and head.record_count <= self.transaction_limits.records_max
        )
