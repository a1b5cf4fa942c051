"""Epochs on any clock: a run is above all that it has read and every run before it; what replaces a frontier is above whoever read that one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from common.epochs import AHEAD_MS, of_run, raised

CLOCK = st.integers(1_700_000_000_000, 1_900_000_000_000)
WITHIN = st.integers(1, AHEAD_MS - 1)


@given(CLOCK, st.lists(st.integers(0, 2_000_000_000_000), max_size=4))
def test_a_run_is_above_what_it_has_read(clock_ms: int, read: list[int]) -> None:
    """Whatever that is, and not behind the clock."""
    assert of_run(clock_ms, read) >= max([clock_ms, *(epoch + 1 for epoch in read)])


@given(CLOCK, WITHIN, WITHIN)
def test_who_has_read_what_was_replaced_is_not_believed(chosen_ms: int, later_ms: int, long_ago_ms: int) -> None:
    """Planned after the choice and before the commit can be read: the run's epoch is the lower one all the same."""
    old = chosen_ms - long_ago_ms
    assert of_run(chosen_ms + later_ms, [old]) < raised(chosen_ms, [old], replaces=True)


@given(CLOCK, st.lists(WITHIN, min_size=2, max_size=6, unique=True))
def test_runs_that_have_read_the_same_frontier_have_epochs_of_their_own(chosen_ms: int, later_ms: list[int]) -> None:
    """Also while the frontier is ahead of the clock, and none of them has moved it."""
    frontier = raised(chosen_ms, [], replaces=True)
    epochs = [of_run(chosen_ms + later, [frontier]) for later in sorted(later_ms)]
    assert epochs == sorted(set(epochs))
    assert epochs[0] > frontier


def test_a_first_frontier_is_not_ahead() -> None:
    """Nobody can have read one before it."""
    assert raised(1_800_000_000_000, [5], replaces=False) == 1_800_000_000_000
