"""The rule: which records of the intermediate topic are new. Pure; the heart of reo.

It is Kafka's idempotent-producer rule (producer epoch and sequence, KIP-98) carried end to end across Spark. State per
intermediate partition is the frontier (last accepted source offset), the epoch of the run that is believed, and the link:
the record of that epoch covered last. For a record (o, e, b, s):

1. e older than the state's epoch: **stale**. A zombie of an earlier run; its run was replaced by one that starts at the frontier.
2. e newer: take the epoch over; nothing is linked yet.
3. o ≤ frontier: **duplicate**; if it is the furthest of its epoch it becomes the link.
4. o > frontier and (s = 0, or b = link.batch and s = link.sequence + 1 and o > link.offset): **accept**; it is the frontier and the link.
5. otherwise: **hole**. Something between was not written. Nothing moves: stage one has not committed its batch, so a retry
   writes the whole range again.

Offsets alone can not be asked (`o = frontier + 1`): compaction, control records and filters leave legal gaps. A highest-seen
rule loses records: a producer can fail one batch and deliver the next, and the late record is then below the highest seen.
s = 0 may be trusted because Spark starts a batch only when the one before it is wholly written, and a run starts at
frontier + 1. b is asked because sequences restart with each batch.

Deciding takes a batch, so that purity costs nothing per record: the loop works on locals, and the state is made once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from common.frontier import Link, RuleState
from common.origin import Origin


class Decision(NamedTuple):
    """What becomes of one partition's batch: every record is accepted or counted under the reason it was dropped for."""

    state: RuleState
    accepted: list[int]
    """Positions in the batch, ascending."""
    duplicates: int
    stale: int
    holes: int


def decide(state: RuleState, origins: Sequence[Origin]) -> Decision:
    """Apply the rule to one partition's records in the order of the intermediate topic."""
    frontier, epoch, link = state
    link_offset, link_batch, link_sequence = link or (-1, -1, -1)
    accepted: list[int] = []
    duplicates = stale = 0
    for position, origin in enumerate(origins):
        record_epoch = origin.epoch
        if record_epoch != epoch:
            if record_epoch < epoch:
                stale += 1
                continue
            epoch = record_epoch
            link_offset = link_batch = link_sequence = -1
        source_offset = origin.source_offset
        sequence = origin.sequence
        if source_offset <= frontier:
            duplicates += 1
            if source_offset > link_offset:
                link_offset, link_batch, link_sequence = source_offset, origin.batch, sequence
        elif sequence == 0 or (
            sequence == link_sequence + 1 and origin.batch == link_batch and source_offset > link_offset
        ):
            accepted.append(position)
            frontier = link_offset = source_offset
            link_batch = origin.batch
            link_sequence = sequence
    new_link = Link(link_offset, link_batch, link_sequence) if link_offset >= 0 else None
    holes = len(origins) - len(accepted) - duplicates - stale
    return Decision(RuleState(frontier, epoch, new_link), accepted, duplicates, stale, holes)
