"""The rule: which records of the intermediate topic are new. No I/O; the heart of reo.

`compiled_path.c` (`reo_scan`) has it a second time, in C: whoever changes one changes both
(`tests/unit/test_compiled.py` compares them).

It is Kafka's idempotent-producer rule (producer epoch and sequence, KIP-98) carried end to end
across Spark. State per intermediate partition is the frontier (last accepted source offset), the
epoch of the run that is believed, the link (the last record of that epoch that was accepted or was
a duplicate), and the open hole of that epoch. For a record (o, e, a, s):

1. e older than the state's epoch: **stale**. A zombie of an earlier run; its run was replaced by
   one that starts at the frontier.
2. e newer: it becomes the state's epoch; there is no link yet, and no hole is open.
3. o ≤ frontier: **duplicate**; if it is at or beyond the link, it becomes the link.
4. o > frontier and (s = 0 and no hole is open at or below o, or a = link.attempt and s =
   link.sequence + 1 and o > link.offset): **accept**; it becomes the frontier and the link.
5. otherwise: **hole**. A record in between was not written. It is dropped, and the hole stays open
   until the frontier has reached the highest offset that was dropped: stage one has not committed
   its batch, so a retry, or a new run, writes the whole range again.

Offsets alone are not enough (`o = frontier + 1`): compaction, control records and filters leave
legal gaps. A highest-seen rule loses records: a producer can fail one batch and deliver the next,
and the late record is then below the highest seen. a, the attempt of a Spark task, is compared
because sequences restart with each attempt: a second attempt of the same task numbers its records
anew, and not as the first one did when the source was compacted in between.

Why nothing is lost. A chain (4, the second case) is sound by itself: within an attempt the numbers
are consecutive. s = 0 needs more: Spark starts a batch only when the one before it is completely
written, and a run starts at frontier + 1. So every record before this one was read in this epoch,
and each of them was accepted, was a duplicate, or was dropped by 5. If one of them was dropped and
is not accepted yet, the hole is open below o, and s = 0 is refused. Therefore the state needs both
ends of the hole. The lowest offset alone is not enough: when a straggler fills the first of several
dropped records, the others are still missing, and with them forgotten the next batch would be
accepted over them.

`decide` takes a batch, so that purity costs nothing per record: its loop works on locals, and the
state is created once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from common.frontier import Hole, Link, RuleState
from common.origin import OFFSET_MAX, Origin

NO_HOLE = (OFFSET_MAX + 1, -1)
"""The first and last offset of a hole that is not open: above and below every offset, so that
comparisons need no None.
"""


class Decision(NamedTuple):
    """The result for one partition's batch: every record is accepted, or counted by the reason why
    it was dropped.
    """

    state: RuleState
    accepted: list[int]
    """Positions in the batch, ascending."""
    duplicates: int
    stale: int
    holes: int


def decide(state: RuleState, origins: Sequence[Origin]) -> Decision:
    """Apply the rule to one partition's records in the order of the intermediate topic."""
    frontier, epoch, link, hole = state
    link_offset, link_attempt, link_sequence = link or (-1, -1, -1)
    hole_first, hole_last = hole or NO_HOLE
    accepted: list[int] = []
    duplicates = stale = 0
    for position, origin in enumerate(origins):
        record_epoch = origin.epoch
        if record_epoch != epoch:
            if record_epoch < epoch:
                stale += 1
                continue
            epoch = record_epoch
            link_offset = link_attempt = link_sequence = -1
            hole_first, hole_last = NO_HOLE
        source_offset = origin.source_offset
        sequence = origin.sequence
        if source_offset <= frontier:
            duplicates += 1
            if source_offset >= link_offset:
                link_offset, link_attempt, link_sequence = source_offset, origin.attempt, sequence
        elif (sequence == 0 and source_offset < hole_first) or (
            sequence == link_sequence + 1
            and origin.attempt == link_attempt
            and source_offset > link_offset
        ):
            accepted.append(position)
            frontier = link_offset = source_offset
            link_attempt = origin.attempt
            link_sequence = sequence
            if source_offset >= hole_first:
                hole_first, hole_last = (
                    (source_offset + 1, hole_last) if source_offset < hole_last else NO_HOLE
                )
        else:
            hole_first, hole_last = min(hole_first, source_offset), max(hole_last, source_offset)
    new_link = Link(link_offset, link_attempt, link_sequence) if link_offset >= 0 else None
    new_hole = Hole(hole_first, hole_last) if hole_last >= 0 else None
    holes = len(origins) - len(accepted) - duplicates - stale
    return Decision(
        RuleState(frontier, epoch, new_link, new_hole), accepted, duplicates, stale, holes
    )
