"""One partition of an intermediate topic, from its start until it is revoked or started again.

A `Partition` owns all that a worker knows of it: the position and the frontier, the destination's
output, the decisions of the round. To give a partition up is to drop this object. A round is a fold
over partitions, with these calls for each, in the order of `deduplicator.loop`'s steps:

    get_decisions      2. the decisions of the round, with its first envelope
    write              4. the new records, into the open transaction
    prepare_commit     5. the offset and the frontier for the transaction
    on_delivered       5. the offset of the last record
    on_commit_started  7. the state is that of the round
    on_committed       6. of the next round: the state is certain

After a failure nothing is undone: the object is dropped, and the partition starts anew from what is
committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from confluent_kafka import TopicPartition as ClientTopicPartition

from common.errors import DestinationTruncated
from common.frontier import Frontier
from common.kafka.partition_offsets import GroupCommit
from common.routes import Route, TopicPartition
from deduplicator.destination import UNCOUNTED, Destination, Output
from deduplicator.frontiers.frontier_check import Surplus
from deduplicator.partitioner import Partitioner
from deduplicator.round_decisions import RoundDecisions
from deduplicator.rule import RuleState


@dataclass(slots=True, eq=False)
class Partition:
    """The state of one intermediate partition while the worker owns it."""

    tp: TopicPartition
    route: Route
    next_offset: int
    """Of the intermediate topic."""
    frontier: Frontier
    """With the position, the state after the last commit that was started."""
    output: Output = UNCOUNTED
    surplus: Surplus | None = None
    partitioner: Partitioner | None = None
    """Chooses the destination partition of records, unless the route is one to one."""
    is_assigned: bool = False
    """Whether it is started, and not revoked since."""
    is_uncommitted: bool = False
    """Whether the group does not have this frontier: it is committed before anything else."""
    replaced: Frontier | None = None
    """The frontier that was there before this first one: its destination topic is gone."""
    decisions: RoundDecisions | None = None
    """Those of the present round, if it has an envelope of this partition."""
    sent: GroupCommit | None = None
    """The state that the open transaction commits."""
    committed: Frontier | None = None
    """The newest one that is certainly all that is committed; None before the start is over."""
    last_timestamp_ms: int | None = None
    """Of the last record that was committed."""
    source_tp: TopicPartition = field(init=False)
    """The partition at the source."""

    def __post_init__(self) -> None:
        self.source_tp = self.route.get_source(self.tp.partition)

    @property
    def destination_tp(self) -> TopicPartition:
        """The partition at the destination, of a route that is one to one."""
        return self.route.get_destination(self.tp.partition)

    def describe_replaced(self) -> str:
        """Why a copy that had a frontier begins again, as text."""
        assert self.replaced is not None
        return (
            f"its frontier, up to source offset {self.replaced.source_offset}, is of a destination"
            f" topic that is gone (deleted, or recreated since; its id was"
            f" {self.replaced.destination_topic_id or 'not kept'}). The copy begins again at source"
            f" offset {self.frontier.source_offset + 1}"
        )

    @property
    def parked_tp(self) -> TopicPartition:
        """Where records go that `filter.function` fails on."""
        return TopicPartition(self.route.parked_topic, 0)

    def get_decisions(self, zero_timestamp_ms: int | None = None) -> RoundDecisions:
        """The decisions of the present round, at first none."""
        if self.decisions is None:
            frontier = self.frontier
            state = RuleState(frontier.source_offset, frontier.epoch, frontier.gap)
            self.decisions = RoundDecisions(state, self.next_offset, zero_timestamp_ms)
        return self.decisions

    def write(self, destination: Destination) -> None:
        """Write the round's new records, but for those that a torn transaction has written."""
        decisions = self.get_decisions()
        if self.surplus is not None:
            self._skip_torn(self.surplus, decisions)
        if decisions.envelopes:
            written = destination.forward(
                self.destination_tp, decisions.envelopes, decisions.zero_timestamp_ms
            )
            consumed = sum(envelope.head.record_count for envelope in decisions.envelopes)
            decisions.dropped["duplicate"] += consumed - written
            decisions.written += written
            self.output = self.output._replace(sent=self.output.sent + written)
        # these come after the envelopes: from the first one that is written record by record on,
        # all of the round are
        records = decisions.records[decisions.torn :]
        decisions.written += len(records)
        if self.partitioner:
            begin = 0
            for tp, group in decisions.partitioned_records:
                if group:
                    end = begin + len(group)
                    offsets = decisions.source_offsets[begin:end]
                    destination.write(tp, group, self.source_tp, offsets, self.output)
                    begin = end
        elif records:
            self.output = destination.write(
                self.destination_tp,
                records,
                self.source_tp,
                decisions.source_offsets[decisions.torn :],
                self.output,
            )
        if decisions.parked:
            destination.write(self.parked_tp, decisions.parked, self.source_tp, (), UNCOUNTED)

    def _skip_torn(self, surplus: Surplus, decisions: RoundDecisions) -> None:
        """Find how many of the records are at the destination already."""
        decisions.torn = surplus.skip_matching(decisions.records)
        if decisions.torn:
            self.output = Output(surplus.known_offset, 0, is_known_written=True)
        if not surplus.records:
            self.surplus = None

    def prepare_commit(self) -> ClientTopicPartition:
        """What the transaction commits of this partition, after its records are written."""
        decisions = self.get_decisions()
        frontier = decisions.build_frontier(self.frontier)
        frontier = replace(
            frontier,
            destination_known=self.output.known_offset,
            sent=self.output.sent,
            is_known_written=self.output.is_known_written,
            last_written=None if self.partitioner else frontier.last_written,
        )
        self.sent = GroupCommit(decisions.next_offset, frontier)
        return ClientTopicPartition(*self.tp, decisions.next_offset, frontier.encode())

    def on_delivered(self, last_offsets: Mapping[TopicPartition, int]) -> None:
        """The records are delivered, the last ones of destination partitions at these offsets;
        DestinationTruncated when that cannot be.

        Offsets of a partition only grow. If the partition lost records (an unclean leader election,
        a restored disk, a recreated topic), it gives their offsets again: then `known_offset` would
        be another record's, and the next start would find nothing wrong.
        """
        offset = last_offsets.get(self.destination_tp)
        if offset is None or self.partitioner:
            return
        if offset < self.output.last_offset:
            raise DestinationTruncated(
                f"{self.destination_tp} lost records while it was copied to: {self.output.sent}"
                f" were written after offset {self.output.known_offset}, and the last of them was"
                f" given offset {offset}. This transaction is aborted. Copy to a new topic, or"
                " restore this one"
            )
        self.output = Output(offset, 0, is_known_written=True)

    def on_commit_started(self) -> RoundDecisions:
        """The state is now that of the transaction; returns the decisions of its round."""
        assert self.sent is not None
        self.next_offset, self.frontier = self.sent.intermediate_offset, self.sent.frontier
        decisions, self.decisions = self.get_decisions(), None
        decisions.release_records()
        return decisions

    def drop(self) -> None:
        """The partition is another worker's, or starts again: only `committed` is kept."""
        self.is_assigned = False
        self.decisions = self.surplus = None  # perhaps megabytes

    def on_committed(self, decisions: RoundDecisions | None = None) -> None:
        """The state is certainly committed; it is that after these decisions."""
        self.is_uncommitted = False
        self.committed = self.frontier
        if decisions is not None and decisions.timestamps_ms:
            self.last_timestamp_ms = decisions.timestamps_ms[1]
