"""Moving the frontier over what the source has nothing of (`common.read_up_to`). Pure, as the rule is.

What such a record says is true of the source whenever it is read: between its two offsets there is nothing to copy. So it is
enough that the frontier is exactly the one that it follows; then nothing lies between them that could have been missed. It
is asked for the epoch all the same, so that a zombie moves nothing, whatever it has read. All else is ignored, and is no
error: records that came meanwhile have moved the frontier already. And while a hole is open nothing is moved over: what
is missing there is visible.

The epoch is not taken over, and the link stays: the records that follow are decided by the rule as if nothing had been said.
"""

from __future__ import annotations

from common.frontier import RuleState
from common.read_up_to import ReadUpTo


def advance_frontier(state: RuleState, said: ReadUpTo) -> RuleState:
    """The state after it; the same one when it is not to be believed."""
    believed = state.hole is None and said.epoch >= state.epoch and said.follows == state.frontier < said.source_offset
    return state._replace(frontier=said.source_offset) if believed else state
