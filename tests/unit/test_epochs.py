"""Epochs on any clock: no two runs share one, a run is above all that it has read, and what sets a
frontier is above whoever has not read it.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from common.run_epochs import (
    AHEAD_MS,
    RANDOM_BITS,
    can_exceed,
    create_higher_epoch,
    create_run_epoch,
    get_time_ms,
)
from tests.harness.properties import property_test

CLOCK = st.integers(1_700_000_000_000, 1_900_000_000_000)
WITHIN = st.integers(2, AHEAD_MS - 1)
BACK = st.integers(-AHEAD_MS, 100 * AHEAD_MS)
"""How long before the clock's time an epoch is; below 0 it is ahead."""
BITS = st.integers(0, 2**RANDOM_BITS - 1)


@given(CLOCK, st.lists(st.tuples(BACK, BITS), max_size=4), BITS)
@property_test(examples=1000)
def test_a_run_is_above_what_it_has_read(
    clock_ms: int, back: list[tuple[int, int]], bits: int
) -> None:
    """Whatever that is, and not behind the clock; and below what a frontier can hold."""
    read = [clock_ms - ms << RANDOM_BITS | random for ms, random in back]
    epoch = create_run_epoch(clock_ms, read, bits)
    assert all(epoch > other for other in read)
    assert (
        clock_ms
        <= get_time_ms(epoch)
        <= max(clock_ms, *(get_time_ms(other) + 1 for other in read), 0)
    )
    assert epoch < 2**63


@given(CLOCK, BACK, st.integers(-AHEAD_MS, AHEAD_MS), BITS, BITS)
@property_test(examples=1000)
def test_two_runs_share_an_epoch_only_by_chance(
    clock_ms: int, back: int, between_ms: int, one: int, other: int
) -> None:
    """Planned at any two moments from the same frontier, also at the same one: as long as their
    random bits differ, so do they.
    """
    read = [clock_ms - back << RANDOM_BITS]
    assert (
        create_run_epoch(clock_ms, read, one)
        == create_run_epoch(clock_ms + between_ms, read, other)
    ) <= (one == other)


@given(CLOCK, BACK, st.integers(-AHEAD_MS, AHEAD_MS - 1), BITS)
@property_test(examples=1000)
def test_what_is_set_is_above_a_run_that_has_not_read_it(
    clock_ms: int, back: int, later_ms: int, bits: int
) -> None:
    """Planned before the choice or after it, on a clock that is ahead or behind, from whatever was
    known, be it far ahead of the clock itself.
    """
    old = clock_ms - back << RANDOM_BITS
    assert create_run_epoch(clock_ms + later_ms, [old], bits) < create_higher_epoch(clock_ms, [old])


@given(CLOCK, st.integers(0, AHEAD_MS - 1), WITHIN, BITS)
@property_test(examples=1000)
def test_also_when_that_one_had_replaced_another(
    first_ms: int, between_ms: int, later_ms: int, bits: int
) -> None:
    """Set twice within an hour, even in the same millisecond: who has read the first is below the
    second, and who has read the second is above it.
    """
    first = create_higher_epoch(first_ms, [])
    second = create_higher_epoch(first_ms + between_ms, [first])
    assert (
        first
        < create_run_epoch(first_ms + min(later_ms, between_ms), [first], bits)
        < second
        < create_run_epoch(first_ms + later_ms, [second], bits)
    )


@given(CLOCK, BACK, BACK, BITS)
@property_test(examples=1000)
def test_whether_a_run_can_be_above_is_said_rightly(
    clock_ms: int, back: int, other: int, bits: int
) -> None:
    """Of a run whose clock is behind what it has read: above only where that was said before, and
    never above what is raised over it.
    """
    read, epoch = [clock_ms - back << RANDOM_BITS], clock_ms - other << RANDOM_BITS
    assert create_run_epoch(0, read, bits) < epoch or can_exceed(read, epoch)
    assert not can_exceed(read, create_higher_epoch(clock_ms, read))


@given(CLOCK, st.lists(st.integers(0, 2**62), max_size=4))
@property_test(examples=1000)
def test_what_is_set_is_above_all_that_is_known(clock_ms: int, known: list[int]) -> None:
    """Also where that is further ahead of the clock than an hour, as after a clock was set back."""
    assert all(create_higher_epoch(clock_ms, known) > epoch for epoch in known)
