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
        self, routes: Mapping[str, Route], partitions: Partitions, destination: Destination
    ) -> None:
        self.routes = routes
        self.partitions = partitions
        self.destination = destination

    def get_destination_partition(self, tp: TopicPartition) -> TopicPartition:
        """The destination partition of an intermediate partition."""
        return self.routes[tp.topic].get_destination(tp.partition)

    def write(self, tp: TopicPartition, work: RoundDecisions) -> int:
        """Step 4 for one partition; returns how many records were written. Records that a torn
        transaction has written are not written again.
        """
        state, output, parts = (
            self.partitions.assigned[tp],
            self.get_destination_partition(tp),
            work.parts,
        )
        if state.surplus is not None:
            records = work.records
            work.torn = state.surplus.skip_matching(records)
            parts = (
                [(records[work.torn :], work.source_offsets[work.torn :])]
                if len(records) > work.torn
                else []
            )
            if work.torn:
                self.destination.outputs[output] = DestinationState(
                    state.surplus.known_offset, 0, is_known_written=True
                )
            if not state.surplus.records:
                state.surplus = None
        if state.partitioner:
            for destination_partition, group in work.partitioned_records:
                if group:
                    self.destination.write(destination_partition, group, ())
        else:
            for part, source_offsets in parts:
                self.destination.write(output, part, source_offsets)
        if work.parked:
            self.destination.write(
                TopicPartition(self.routes[tp.topic].parked_topic, 0), work.parked, ()
            )
        return sum(len(part) for part, _ in parts)

    def build_next_state(self, tp: TopicPartition, work: RoundDecisions) -> AssignedPartition:
        """The partition's state when the round is committed."""
        state = self.partitions.assigned[tp]
        last_record = (
            work.last[0].describe_record(work.last[1]) if work.last else state.frontier.last_record
        )
        if last_record and work.left_out:
            last_record = last_record._replace(left_out=True)
        frontier = replace(
            state.frontier,
            rule=work.rule,
            last_record=last_record,
            last_written=self._describe_last_written(state, work),
            leader_epoch=work.leader_epoch,
        )
        return AssignedPartition(work.next_offset, frontier, state.surplus, state.partitioner)

    @staticmethod
    def _describe_last_written(state: AssignedPartition, work: RoundDecisions) -> str | None:
        if state.partitioner is not None:
            return None
        return (
            describe_written(work.parts[-1][0][-1]) if work.parts else state.frontier.last_written
        )

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
