"""The decisions of one round for one partition that are not committed yet: the new state, the
records to write, and counts of the dropped ones.

Each round creates new ones, and they are forgotten together with their partition, so a failed
transaction leaves none behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from common.errors import SourceRecreated
from common.frontier import RuleState
from common.routes import TopicPartition
from deduplicator.compiled_batch import CompiledBatch
from deduplicator.read_up_to_advance import advance_frontier
from deduplicator.record_filter import FilterResult
from deduplicator.rule import decide
from deduplicator.unwrap import Batch, Record

FilterRecords = Callable[[list[Record], list[int]], FilterResult]


@dataclass(slots=True)
class RoundDecisions:
    """The decisions of one round for one partition."""

    rule: RuleState
    """The state after these decisions."""
    next_offset: int
    """Of the intermediate topic."""
    leader_epoch: int | None
    """As in the frontier."""
    parts: list[tuple[Sequence[Record], Sequence[int]]] = field(default_factory=list)
    """The accepted records, unwrapped, in order, with their source offsets; no part is empty.
    Records that Python has decided are in lists, the others are in C
    (`deduplicator.compiled_batch`).
    """
    partitioned_records: list[tuple[TopicPartition, Sequence[Record]]] = field(default_factory=list)
    """The same by destination partition, unless the route is one to one: partitioned before the
    transaction begins, since a user's function may do it.
    """
    last: tuple[Batch | CompiledBatch, int] | None = None
    """The batch of the last accepted record, and the record's position in it."""
    left_out: bool = False
    """Whether the frontier has since moved over records that `filter.sql` left out."""
    parked: list[Record] = field(default_factory=list)
    """Accepted records that go to the parked topic instead."""
    consumed: int = 0
    duplicates: int = 0
    stale: int = 0
    holes: int = 0
    read_up_to: int = 0
    filtered: int = 0
    torn: int = 0
    """Accepted records that are not written, because a torn transaction has written them."""
    cycles: int = 0
    timestamps_ms: tuple[int, int] | None = None
    """Of the first and the last record that was written, once the records are released."""

    def release_records(self) -> None:
        """When they are written: only the counts and two timestamps are needed for what follows."""
        if self.parts:
            (first, _), (last, _) = self.parts[0], self.parts[-1]
            self.timestamps_ms = first[0][3], last[-1][3]
        self.parts, self.partitioned_records, self.last = [], [], None

    @property
    def records(self) -> list[Record]:
        """All accepted records."""
        return list(chain.from_iterable(records for records, _ in self.parts))

    @property
    def source_offsets(self) -> list[int]:
        """Of all accepted records."""
        return list(chain.from_iterable(source_offsets for _, source_offsets in self.parts))

    def scan(self, batch: CompiledBatch, source_identity: str) -> bool:
        """Decide a batch in C; False, and nothing is decided, when it contains something that only
        Python can decide.
        """
        decision = batch.scan(self.rule, source_identity)
        if decision is None:
            return False
        self.rule = decision.state
        if decision.records:
            self.parts.append((decision.records, decision.records.source_offsets))
            self.last, self.left_out = (batch, decision.records.last_position), False
        self.next_offset = batch.next_offset
        self.consumed += len(batch)
        self.duplicates += decision.duplicates
        self.stale += decision.stale
        self.holes += decision.holes
        return True

    def add(
        self,
        batch: Batch,
        source_identity: str,
        zero_timestamp_ms: int | None,
        filter_records: FilterRecords | None = None,
    ) -> list[Record]:
        """Decide a batch, and return the records to write; SourceRecreated before any record of
        another topic is accepted.

        Records that the filter leaves out are accepted, and not written.
        """
        begin, to_write = 0, list[Record]()
        for position, _, read_up_to in batch.read_up_to_messages:
            to_write += self._decide(
                batch, (begin, position), source_identity, zero_timestamp_ms, filter_records
            )
            next_rule = advance_frontier(self.rule, read_up_to)
            if next_rule != self.rule and read_up_to.source_identity != source_identity:
                raise _build_recreated_error(read_up_to.source_identity, source_identity)
            self.left_out = self.left_out or (next_rule != self.rule and read_up_to.left_out)
            self.rule, begin = next_rule, position
        to_write += self._decide(
            batch, (begin, len(batch.origins)), source_identity, zero_timestamp_ms, filter_records
        )
        self.next_offset = batch.next_offset
        self.consumed += len(batch.messages) + len(batch.read_up_to_messages)
        self.read_up_to += len(batch.read_up_to_messages)
        return to_write

    def _decide(
        self,
        batch: Batch,
        between: tuple[int, int],
        source_identity: str,
        zero_timestamp_ms: int | None,
        filter_records: FilterRecords | None,
    ) -> list[Record]:
        """Decide the records of a batch between two positions."""
        begin, end = between
        decision = decide(self.rule, batch.origins[begin:end])
        positions = (
            [begin + position for position in decision.accepted] if begin else decision.accepted
        )
        accepted = [batch.origins[position] for position in positions]
        for origin in accepted:
            if origin.source_identity != source_identity:
                raise _build_recreated_error(origin.source_identity, source_identity)
        records, source_offsets = (
            batch.list_records(positions, zero_timestamp_ms),
            [origin.source_offset for origin in accepted],
        )
        if filter_records is not None:
            records, source_offsets, parked, cycles = filter_records(records, source_offsets)
            self.parked += parked
            self.cycles += cycles
            self.filtered += len(accepted) - len(records) - len(parked) - cycles
        self._append_part(records, source_offsets)
        if accepted:
            self.last, self.left_out = (batch, positions[-1]), False
        self.rule = decision.state
        self.duplicates += decision.duplicates
        self.stale += decision.stale
        self.holes += decision.holes
        return records

    def _append_part(self, records: list[Record], source_offsets: list[int]) -> None:
        """Append to the last part if Python has decided it too: the fewer parts, the fewer
        writes.
        """
        if not records:
            return
        last, offsets = self.parts[-1] if self.parts else (None, None)
        if isinstance(last, list) and isinstance(offsets, list):
            last += records
            offsets += source_offsets
        else:
            self.parts.append((records, source_offsets))


def _build_recreated_error(found_identity: str, copied_identity: str) -> SourceRecreated:
    return SourceRecreated(
        f"stage one copies a source topic with identity {found_identity}, this copy is of"
        f" {copied_identity}: the topic was deleted and recreated, or source.bootstrap_servers"
        " leads to another cluster. To copy the new topic, set another destination.topic"
    )


def describe_largest_record(works: Mapping[TopicPartition, RoundDecisions]) -> str:
    """The record of a refused transaction that was most probably refused."""
    size, partition, source_offset = max(
        (
            (len(value or b"") + len(key or b""), tp.partition, source_offset)
            for tp, work in works.items()
            for (key, value, *_), source_offset in zip(
                work.records, work.source_offsets, strict=True
            )
        ),
        default=(0, -1, -1),
    )
    if not size:
        return "It is a parked record"
    return (
        f"The largest record of the batch is in source partition {partition} at offset"
        f" {source_offset}, {size} bytes"
    )
