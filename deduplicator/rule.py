"""The rule: which envelopes of the intermediate topic are new. No I/O; the heart of reo.

State per intermediate partition, a part of its frontier: the source offset up to which everything
is copied, and the epoch of the newest run that was seen. An envelope covers the stretch (after,
through] of the source (`common.envelope`):

    an envelope with           is            and
    an older epoch             stale         dropped
    through ≤ offset           a duplicate   dropped
    after ≤ offset < through   accepted      its records above the offset are written; the offset is
                                             `through`
    after > offset             beyond a gap  dropped; a new run writes again from the frontier on

(A newer epoch becomes the state's epoch first.)

Why it is right. Invariant: every visible source record up to the offset is at the destination,
once, or was seen as one that is not to be copied. An envelope is a true statement about the source:
below the last stable offset a history only shrinks, so it stays true. If after ≤ offset < through,
the records above the offset are all that is visible in (offset, through], and moving the offset
there keeps the invariant; dropping an envelope always keeps it. What the intermediate topic does
with envelopes is used nowhere: it may lose, repeat and reorder them.

The epoch separates statements about different worlds: another `filter.sql`, another source, a
source that lost records and grew again. A run installs its epoch before it reads the frontiers that
it begins at (`replicator.runs.planner`), so the statements of two worlds are never mixed by
envelopes that were still unread.

`gap` is not part of the rule, and `decide` never reads it to decide: it is a hint for stage one,
which begins a new run when a gap stays open.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from common.envelope import Head

Decision = Literal["accepted", "duplicate", "stale", "gap"]


class RuleState(NamedTuple):
    """What the rule knows of one intermediate partition: three fields of its frontier."""

    source_offset: int
    """Everything up to this source offset is copied; -1 before the first record."""
    epoch: int
    gap: int | None = None
    """Source offsets after `source_offset` and up to this one are missing: an envelope of this
    epoch that begins after them was dropped.
    """


def decide(state: RuleState, envelope: Head) -> tuple[Decision, RuleState]:
    """What an envelope is, and the state after it."""
    offset, epoch, gap = state
    if envelope.epoch < epoch:
        return "stale", state
    if envelope.epoch > epoch:
        epoch, gap = envelope.epoch, None
    if envelope.through <= offset:
        return "duplicate", RuleState(offset, epoch, gap)
    if envelope.after > offset:
        return "gap", RuleState(offset, epoch, envelope.after if gap is None else gap)
    offset = envelope.through
    return "accepted", RuleState(offset, epoch, None if gap is None or gap <= offset else gap)
