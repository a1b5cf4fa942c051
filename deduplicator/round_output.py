"""What a round writes to the destination: the accepted records of each partition, and with them the
next frontier.

It goes into the transaction that `deduplicator.loop` has begun; nothing of it counts before the
commit, so the state of a partition changes only then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from confluent_kafka import TopicPartition as ClientTopicPartition

from common.routes import Route, TopicPartition
from deduplicator.destination import UNCOUNTED, Destination, DestinationState
from deduplicator.partitions import AssignedPartition, Partitions
from deduplicator.round_decisions import RoundDecisions
from deduplicator.unwrap import describe_written


class RoundOutput:
    """Writes the work of rounds; `routes` is by intermediate topic."""

    def __init__(
        self,
        routes: Mapping[str, Route],
        partitions: Partitions,
        destination: Destination,
        zero_timestamp_ms: int | None = None,
    ) -> None:
        self.routes = routes
        self.partitions = partitions
        self.destination = destination
        self.zero_timestamp_ms = zero_timestamp_ms

    def get_destination_partition(self, tp: TopicPartition) -> TopicPartition:
        """The destination partition of an intermediate partition."""
        return self.routes[tp.topic].get_destination(tp.partition)

    def write(self, tp: TopicPartition, work: RoundDecisions) -> int:
        """Step 4 for one partition; returns how many records were written. Records that a torn
        transaction has written are not written again.
        """
        state, output = self.partitions.assigned[tp], self.get_destination_partition(tp)
        if state.surplus is not None:
            self._find_torn(output, state, work)
        forwarded, written = 0, len(work.records) - work.torn
        if work.envelopes:
            forwarded = self.destination.forward(output, work.envelopes, self.zero_timestamp_ms)
            work.duplicates += sum(one.head.record_count for one in work.envelopes) - forwarded
        # these come after the envelopes: from the first one that is written record by record on,
        # all of the round are
        if state.partitioner:
            for destination_partition, group in work.partitioned_records:
                if group:
                    self.destination.write(destination_partition, group, ())
        elif written:
            self.destination.write(
                output, work.records[work.torn :], work.source_offsets[work.torn :]
            )
        if work.parked:
            self.destination.write(
                TopicPartition(self.routes[tp.topic].parked_topic, 0), work.parked, ()
            )
        return forwarded + written

    def _find_torn(
        self, output: TopicPartition, state: AssignedPartition, work: RoundDecisions
    ) -> None:
        """How many of the records are at the destination already."""
        assert state.surplus is not None
        work.torn = state.surplus.skip_matching(work.records)
        if work.torn:
            self.destination.outputs[output] = DestinationState(
                state.surplus.known_offset, 0, is_known_written=True
            )
        if not state.surplus.records:
            state.surplus = None

    def build_next_state(self, tp: TopicPartition, work: RoundDecisions) -> AssignedPartition:
        """The partition's state when the round is committed."""
        state = self.partitions.assigned[tp]
        frontier = replace(
            state.frontier,
            source_offset=work.rule.frontier,
            epoch=work.rule.epoch,
            gap=work.rule.gap,
            last_record=work.describe_last_record(state.frontier.last_record),
            last_written=self._describe_last_written(state, work),
        )
        return AssignedPartition(work.next_offset, frontier, state.surplus, state.partitioner)

    def _describe_last_written(self, state: AssignedPartition, work: RoundDecisions) -> str | None:
        if state.partitioner is not None:
            return None
        last = work.find_last_written(self.zero_timestamp_ms)
        return state.frontier.last_written if last is None else describe_written(last)

    def send_offsets(
        self, next_states: Mapping[TopicPartition, AssignedPartition], member: object
    ) -> None:
        """Step 5: the frontier is encoded last, when the number of sent records is known."""

        def encode_frontiers() -> list[ClientTopicPartition]:
            offsets = []
            for tp, state in next_states.items():
                output = (
                    self.destination.outputs[self.get_destination_partition(tp)]
                    if state.partitioner is None
                    else UNCOUNTED
                )
                state.frontier = replace(
                    state.frontier,
                    destination_known=output.known_offset,
                    sent=output.sent,
                    is_known_written=output.is_known_written,
                    last_written=state.frontier.last_written if output != UNCOUNTED else None,
                )
                offsets.append(
                    ClientTopicPartition(*tp, state.next_offset, state.frontier.encode())
                )
            return offsets

        self.destination.send_offsets(encode_frontiers, member)
