"""The lifecycle of a transactional producer: a table of states and events.

An event that is not in the table is a defect of reo, and no error for users: RuntimeError.
"""

from __future__ import annotations

from typing import Literal

State = Literal["new", "ready", "open", "offsets sent", "committing"]
Event = Literal[
    "initialised", "begun", "offsets sent", "commit sent", "committed", "aborted", "in doubt"
]
NEXT: dict[tuple[State, Event], State] = {
    ("new", "initialised"): "ready",
    ("ready", "begun"): "open",
    ("open", "offsets sent"): "offsets sent",
    ("offsets sent", "commit sent"): "committing",
    ("committing", "committed"): "ready",
    ("open", "aborted"): "ready",
    ("offsets sent", "aborted"): "ready",
    ("committing", "aborted"): "ready",
    ("new", "in doubt"): "new",
    ("ready", "in doubt"): "new",
    ("open", "in doubt"): "new",
    ("offsets sent", "in doubt"): "new",
    ("committing", "in doubt"): "new",
}


def get_next_state(state: State, event: Event) -> State:
    """The next state; RuntimeError when the table does not have the event in this state."""
    if (state, event) not in NEXT:
        raise RuntimeError(f"a producer that is {state!r} cannot take {event!r}")
    return NEXT[state, event]
