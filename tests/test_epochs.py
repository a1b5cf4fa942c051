"""Epochs on any clock: a run is above all that it has read and every run before it; what replaces a frontier is above whoever read that one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from common.epochs import AHEAD_MS, SLOWER, of_run, raised

CLOCK = st.integers(1_700_000_000_000, 1_900_000_000_000)
WITHIN = st.integers(1, AHEAD_MS - 1)
BACK = st.integers(-AHEAD_MS, 100 * AHEAD_MS)
"""How long before the clock's time an epoch is; below 0 it is ahead."""


@given(CLOCK, st.lists(BACK, max_size=4))
def test_a_run_is_above_what_it_has_read(clock_ms: int, back: list[int]) -> None:
    """Whatever that is, and not behind the clock."""
    read = [clock_ms - ms for ms in back]
    assert of_run(clock_ms, read) >= max([clock_ms, *(epoch + 1 for epoch in read)])


@given(CLOCK, BACK, st.integers(SLOWER, 10 * AHEAD_MS), st.integers(0, 10 * AHEAD_MS))
def test_a_run_is_above_every_run_before_it(clock_ms: int, back: int, later_ms: int, raised_by: int) -> None:
    """A later one has read the same or a higher epoch. The one before need not have left a trace."""
    read = clock_ms - back
    then = clock_ms + later_ms
    assert of_run(clock_ms, [read]) < of_run(then, [min(read + raised_by, then + AHEAD_MS)])


@given(CLOCK, WITHIN, WITHIN)
def test_who_has_read_what_was_replaced_is_not_believed(chosen_ms: int, later_ms: int, long_ago_ms: int) -> None:
    """Planned after the choice and before the commit can be read: the run's epoch is the lower one all the same."""
    old = chosen_ms - long_ago_ms
    assert of_run(chosen_ms + later_ms, [old]) < raised(chosen_ms, [old], replaces=True)


@given(CLOCK, st.integers(1000, AHEAD_MS), st.integers(0, 60_000))
def test_also_when_that_one_had_replaced_another(first_ms: int, between_ms: int, later_ms: int) -> None:
    """Twice within an hour, a second or more apart: whoever has read the first is below the second for a minute and more."""
    first = raised(first_ms, [], replaces=True)
    second = raised(first_ms + between_ms, [first], replaces=True)
    assert first < of_run(first_ms + between_ms + later_ms, [first]) < second


def test_a_first_frontier_is_not_ahead() -> None:
    """Nobody can have read one before it."""
    assert raised(1_800_000_000_000, [5], replaces=False) == 1_800_000_000_000
