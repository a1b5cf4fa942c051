"""What a round has decided for one partition and not yet committed: the new state, the records to write, and what was dropped.

It is made anew for each round and forgotten together with its partition, so a failed transaction leaves nothing of it behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from common.errors import SourceRecreated
from common.frontier import RuleState
from common.routes import Place
from deduplicator.compiled import CompiledBatch
from deduplicator.frontier_advance import advance_frontier
from deduplicator.record_filter import FilterResult
from deduplicator.rule import decide
from deduplicator.unwrap import Batch, Record

FilterRecords = Callable[[list[Record], list[int]], FilterResult]


@dataclass(slots=True)
class Work:
    """What a round has decided for one partition, and not yet committed."""

    rule: RuleState
    """The state after it."""
    next_offset: int
    """Of the intermediate topic."""
    parts: list[tuple[Sequence[Record], Sequence[int]]] = field(default_factory=list)
    """The accepted records, unwrapped, in order, with their source offsets; none of the parts is empty. What Python has decided is in
    lists, the rest in C (`deduplicator.compiled`)."""
    runs: list[tuple[Place, Sequence[Record]]] = field(default_factory=list)
    """Where they go, unless the route is one to one: decided before the transaction is begun, since a user's function may do it."""
    last: tuple[Batch | CompiledBatch, int] | None = None
    """The batch that the last accepted record is in, and its position there."""
    left_out: bool = False
    """Whether the frontier has moved since over what `filter.sql` left out."""
    parked: list[Record] = field(default_factory=list)
    """Accepted ones that go to the parked topic instead."""
    consumed: int = 0
    duplicates: int = 0
    stale: int = 0
    holes: int = 0
    read_up_to: int = 0
    filtered: int = 0
    cycles: int = 0

    @property
    def records(self) -> list[Record]:
        """All that were accepted."""
        return list(chain.from_iterable(records for records, _ in self.parts))

    @property
    def source_offsets(self) -> list[int]:
        """Theirs."""
        return list(chain.from_iterable(source_offsets for _, source_offsets in self.parts))

    def scan(self, batch: CompiledBatch, source_identity: str) -> bool:
        """Decide a run in C; False, and nothing is decided, when there is something in it that only Python knows what to do with."""
        decided = batch.scan(self.rule, source_identity)
        if decided is None:
            return False
        self.rule = decided.state
        if decided.records:
            self.parts.append((decided.records, decided.records.source_offsets))
            self.last, self.left_out = (batch, decided.records.last_position), False
        self.next_offset = batch.next_offset
        self.consumed += len(batch)
        self.duplicates += decided.duplicates
        self.stale += decided.stale
        self.holes += decided.holes
        return True

    def add(self, batch: Batch, source_identity: str, zero_timestamp_ms: int | None, filter_records: FilterRecords | None = None) -> list[Record]:
        """Decide a batch, and return the records that are to be written; SourceRecreated before anything of another topic's records is taken.

        What the filter leaves out is accepted, and not written.
        """
        begin, written = 0, list[Record]()
        for position, _, read_up_to in batch.read_up_to_messages:
            written += self._decide(batch, (begin, position), source_identity, zero_timestamp_ms, filter_records)
            moved = advance_frontier(self.rule, read_up_to)
            if moved != self.rule and read_up_to.source_identity != source_identity:
                raise _recreated(read_up_to.source_identity, source_identity)
            self.left_out = self.left_out or (moved != self.rule and read_up_to.left_out)
            self.rule, begin = moved, position
        written += self._decide(batch, (begin, len(batch.origins)), source_identity, zero_timestamp_ms, filter_records)
        self.next_offset = batch.next_offset
        self.consumed += len(batch.messages) + len(batch.read_up_to_messages)
        self.read_up_to += len(batch.read_up_to_messages)
        return written

    def _decide(self, batch: Batch, between: tuple[int, int], source_identity: str, zero_timestamp_ms: int | None,
                filter_records: FilterRecords | None) -> list[Record]:
        """The records of a batch between two positions."""
        begin, end = between
        decision = decide(self.rule, batch.origins[begin:end])
        positions = [begin + position for position in decision.accepted] if begin else decision.accepted
        accepted = [batch.origins[position] for position in positions]
        for origin in accepted:
            if origin.source_identity != source_identity:
                raise _recreated(origin.source_identity, source_identity)
        records, source_offsets = batch.records(positions, zero_timestamp_ms), [origin.source_offset for origin in accepted]
        if filter_records is not None:
            records, source_offsets, parked, cycles = filter_records(records, source_offsets)
            self.parked += parked
            self.cycles += cycles
            self.filtered += len(accepted) - len(records) - len(parked) - cycles
        self._keep(records, source_offsets)
        if accepted:
            self.last, self.left_out = (batch, positions[-1]), False
        self.rule = decision.state
        self.duplicates += decision.duplicates
        self.stale += decision.stale
        self.holes += decision.holes
        return records


    def _keep(self, records: list[Record], source_offsets: list[int]) -> None:
        """Behind what Python has decided before: a destination is written to as seldom as can be."""
        if not records:
            return
        last, offsets = self.parts[-1] if self.parts else (None, None)
        if isinstance(last, list) and isinstance(offsets, list):
            last += records
            offsets += source_offsets
        else:
            self.parts.append((records, source_offsets))


def _recreated(found: str, copied: str) -> SourceRecreated:
    return SourceRecreated(
        f"stage one copies a source topic with identity {found}, this copy is of {copied}: it was deleted and recreated, or source.bootstrap_servers "
        "leads to another cluster. To copy the new one, give it another destination.topic")
