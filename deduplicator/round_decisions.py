"""The decisions of one round for one partition that are not committed yet: the new state, what to
write, and counts of what was dropped.

Each round creates new ones, and they are forgotten together with their partition, so a failed
transaction leaves none behind. Envelopes are written as they are, or record by record; once one is
written record by record, all that follow it in the round are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from common.envelope import EnvelopeRecord, Head
from common.errors import SourceRecreated
from common.frontier import Frontier, LastRecord
from common.records import Consumed
from common.routes import TopicPartition
from deduplicator.record_filter import FilterResult
from deduplicator.rule import RuleState, decide
from deduplicator.unwrap import (
    AcceptedEnvelope,
    Record,
    describe_last_record,
    describe_written,
    find_last_record,
    unwrap,
    unwrap_records,
)

FilterRecords = Callable[[list[Record], list[int]], FilterResult]


@dataclass(slots=True)
class RoundDecisions:
    """The decisions of one round for one partition."""

    rule: RuleState
    """The state after these decisions."""
    next_offset: int
    """Of the intermediate topic."""
    zero_timestamp_ms: int | None = None
    """Replaces timestamp 0 (`deduplicator.unwrap.unwrap`)."""
    envelopes: list[AcceptedEnvelope] = field(default_factory=list)
    """Those that are written as they are, in order."""
    records: list[Record] = field(default_factory=list)
    """Those that are written record by record, in order."""
    source_offsets: list[int] = field(default_factory=list)
    """Of `records`."""
    partitioned_records: list[tuple[TopicPartition, Sequence[Record]]] = field(default_factory=list)
    """`records` by destination partition, unless the route is one to one: partitioned before the
    transaction begins, since a user's function may do it.
    """
    last: tuple[AcceptedEnvelope, EnvelopeRecord] | None = None
    """The last accepted record of those that are written record by record, before any filter."""
    left_out_through: int = -1
    """The end of the last accepted stretch of which `filter.sql` has left records out."""
    parked: list[Record] = field(default_factory=list)
    """Accepted records that go to the parked topic instead."""
    consumed: int = 0
    """Source records in all envelopes, accepted or not."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Source records that are not written to the destination topic, by the metric's reason."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Of those, what each function of `filter.function` has left out."""
    torn: int = 0
    """Accepted records that are not written, because a torn transaction has written them."""
    written: int = 0
    timestamps_ms: tuple[int, int] | None = None
    """Of the first and the last record that was written, once the records are released."""

    def drop_old_format(self, message: Consumed) -> None:
        """Go on after a record of the old format."""
        self.dropped["old format"] += 1
        self.consumed += 1
        self.next_offset = message.offset() + 1

    def decide(
        self, message: Consumed, head: Head, source_identity: str
    ) -> AcceptedEnvelope | None:
        """Ask the rule about one envelope: its state and the counts change, and it is returned if
        it is accepted. SourceRecreated before anything of another topic is accepted.
        """
        above = self.rule.source_offset
        decision, rule = decide(self.rule, head)
        if decision == "accepted" and head.source_identity != source_identity:
            raise _build_recreated_error(head.source_identity, source_identity)
        self.rule = rule
        self.next_offset = message.offset() + 1
        if decision == "accepted":
            value = message.value()
            assert value is not None  # it has a head
            return AcceptedEnvelope(message, head, value, above)
        self.consumed += head.record_count
        self.dropped[decision] += head.record_count
        return None

    def add_envelope(self, envelope: AcceptedEnvelope) -> None:
        """Write an accepted envelope as it is."""
        self.envelopes.append(envelope)
        self.consumed += envelope.head.record_count
        self._note_left_out(envelope)

    def count_duplicates(self, count: int) -> None:
        """Records of an accepted envelope that are copied already."""
        self.dropped["duplicate"] += count
        self.consumed += count

    def add_records(
        self,
        envelope: AcceptedEnvelope,
        accepted: Sequence[EnvelopeRecord],
        filter_records: FilterRecords | None = None,
    ) -> list[Record]:
        """Write the next new records of an accepted envelope, perhaps none, one by one; returns
        those that are written. Records that the filter leaves out are accepted, and not written.
        """
        self.consumed += len(accepted)
        if accepted:
            self.last = envelope, accepted[-1]
        self._note_left_out(envelope)
        records = unwrap_records(envelope, accepted, self.zero_timestamp_ms)
        source_offsets = [record.source_offset for record in accepted]
        if filter_records is not None:
            records, source_offsets, parked, left_out, cycles = filter_records(
                records, source_offsets
            )
            self.parked += parked
            self.left_out += left_out
            self.dropped["parked"] += len(parked)
            self.dropped["cycle"] += cycles
            self.dropped["filtered"] += left_out.total()
        self.records += records
        self.source_offsets += source_offsets
        return records

    def _note_left_out(self, envelope: AcceptedEnvelope) -> None:
        if envelope.head.has_left_out:
            self.left_out_through = envelope.head.through

    def stop_before_end(self, envelope: AcceptedEnvelope, source_offset: int) -> None:
        """Records of the envelope above this offset are left to the next round: the frontier's
        offset is this one, and the position stays at the envelope, which is decided again.
        """
        self.rule = self.rule._replace(source_offset=source_offset)
        self.next_offset = envelope.message.offset()

    def find_last(self) -> tuple[AcceptedEnvelope, EnvelopeRecord] | None:
        """The last accepted record, before any filter, and its envelope."""
        return self.last or find_last_record(self.envelopes)

    def describe_last_record(self, before: LastRecord | None) -> LastRecord | None:
        """The last accepted record, for the frontier; `before`: as of the last round."""
        last = self.find_last()
        # an envelope of which the rest is left to the next round ends beyond the frontier
        left_out_through = min(self.left_out_through, self.rule.source_offset)
        if last is None:
            return before._replace(left_out=True) if before and left_out_through >= 0 else before
        _, record = last
        return describe_last_record(record, left_out_through > record.source_offset)

    def _describe_last_written(self, before: str | None) -> str | None:
        """The frontier's description of the last record that is written, as it is written."""
        if self.records:
            return describe_written(self.records[-1])
        last = find_last_record(self.envelopes)
        return describe_written(unwrap(*last, self.zero_timestamp_ms)) if last else before

    def build_frontier(self, before: Frontier) -> Frontier:
        """The frontier after this round, whose records at the destination are not counted yet."""
        return replace(
            before,
            source_offset=self.rule.source_offset,
            epoch=self.rule.epoch,
            gap=self.rule.gap,
            last_record=self.describe_last_record(before.last_record),
            last_written=self._describe_last_written(before.last_written),
        )

    def release_records(self) -> None:
        """When they are written: only the counts and two timestamps are needed for what follows."""
        if self.records:
            self.timestamps_ms = self.records[0][3], self.records[-1][3]
        elif last := find_last_record(self.envelopes):
            first = next(envelope for envelope in self.envelopes if envelope.head.record_count)
            self.timestamps_ms = first.head.base_timestamp_ms, last[1].timestamp_ms
        self.envelopes, self.records, self.source_offsets = [], [], []
        self.partitioned_records, self.last = [], None


def _build_recreated_error(found_identity: str, copied_identity: str) -> SourceRecreated:
    return SourceRecreated(
        f"stage one copies a source topic with identity {found_identity}, this copy is of"
        f" {copied_identity}: the topic was deleted and recreated, or source.bootstrap_servers"
        " leads to another cluster. To copy the new topic, set another destination.topic"
    )
