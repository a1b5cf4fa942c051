"""Moves the frontier over source offsets that have no record to copy (read-up-to records,
`common.read_up_to_record`). No I/O, like the rule.

A read-up-to record is true whenever it is read: between its two offsets the source has nothing to
copy. So it is enough that the frontier is exactly the offset that it follows; then no record in
between can be missed. Its epoch is checked nevertheless, so that a zombie moves nothing, whatever
it has read. All other read-up-to records are ignored, without an error: records that were copied
meanwhile have moved the frontier already. While a hole is open, the frontier is not moved: the
records that are missing there are visible ones.

The epoch of the state does not change, and the link stays: the rule decides the following records
as if there were no read-up-to record.
"""

from __future__ import annotations

from common.frontier import RuleState
from common.read_up_to_record import ReadUpTo


def advance_frontier(state: RuleState, read_up_to: ReadUpTo) -> RuleState:
    """The state after it; the same state when it does not apply."""
    applies = (
        state.hole is None
        and read_up_to.epoch >= state.epoch
        and read_up_to.follows == state.frontier < read_up_to.source_offset
    )
    return state._replace(frontier=read_up_to.source_offset) if applies else state
