"""The rule, line by line. (`test_rule_model` has it in a model of everything around it.)"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.envelope import OFFSET_MAX, Head
from deduplicator.rule import Decision, RuleState, decide
from tests.harness.envelopes import IDENTITY
from tests.harness.properties import property_test


def build_head(epoch: int, after: int, through: int) -> Head:
    """The fields that the rule reads."""
    return Head(IDENTITY, epoch, 0, after, through)


@pytest.mark.parametrize(
    ("epoch", "after", "through", "decision", "source_offset"),
    [
        pytest.param(6, 10, 15, "stale", 10, id="an older epoch"),
        pytest.param(6, 20, 25, "stale", 10, id="an older epoch beyond a gap"),
        pytest.param(6, 0, 5, "stale", 10, id="an older epoch's duplicate"),
        pytest.param(7, 0, 5, "duplicate", 10, id="below the frontier"),
        pytest.param(7, 5, 10, "duplicate", 10, id="up to the frontier"),
        pytest.param(7, 10, 10, "duplicate", 10, id="nothing"),
        pytest.param(7, 10, 11, "accepted", 11, id="from the frontier on"),
        pytest.param(7, -1, 11, "accepted", 11, id="from the beginning to above the frontier"),
        pytest.param(7, 9, 15, "accepted", 15, id="around the frontier"),
        pytest.param(7, 11, 12, "gap", 10, id="one offset is missing"),
        pytest.param(7, 50, 60, "gap", 10, id="many are missing"),
        pytest.param(8, 10, 15, "accepted", 15, id="a newer epoch"),
        pytest.param(8, 0, 5, "duplicate", 10, id="a newer epoch's duplicate"),
        pytest.param(8, -1, -1, "duplicate", 10, id="a newer epoch is installed"),
        pytest.param(8, 50, 60, "gap", 10, id="a newer epoch beyond a gap"),
    ],
)
def test_each_line_of_the_table(
    epoch: int, after: int, through: int, decision: Decision, source_offset: int
) -> None:
    """From offset 10 and epoch 7, at both ends of each range. The epoch never goes back."""
    found, state = decide(RuleState(10, 7), build_head(epoch, after, through))
    assert (found, state.source_offset, state.epoch) == (decision, source_offset, max(7, epoch))


def test_the_first_record_of_all() -> None:
    """Nothing is copied, no run was seen."""
    fresh = RuleState(-1, 0)
    assert decide(fresh, build_head(0, -1, 0)) == ("accepted", RuleState(0, 0))
    assert decide(fresh, build_head(3, 0, 1)) == ("gap", RuleState(-1, 3, 0))
    assert decide(fresh, build_head(3, -1, -1)) == ("duplicate", RuleState(-1, 3))


def test_a_newer_run_makes_the_older_one_a_zombie() -> None:
    """At once, also when its first envelope that arrives is beyond a gap or a duplicate."""
    for first in (build_head(8, 50, 60), build_head(8, 0, 5), build_head(8, 10, 12)):
        _, state = decide(RuleState(10, 7), first)
        assert decide(state, build_head(7, state.source_offset, 90)) == ("stale", state)


def follow(*heads: Head) -> RuleState:
    """The state after these envelopes, from offset 10 and epoch 7."""
    state = RuleState(10, 7)
    for head in heads:
        _, state = decide(state, head)
    return state


LOST = build_head(7, 20, 30)
"""What follows one that was lost: (10, 20] is missing."""


@pytest.mark.parametrize(
    ("heads", "gap"),
    [
        pytest.param([], None, id="nothing is missing"),
        pytest.param([LOST], 20, id="up to where the first one begins that was dropped"),
        pytest.param([LOST, build_head(7, 30, 40)], 20, id="the first one tells"),
        pytest.param([LOST, build_head(7, 0, 5)], 20, id="a duplicate fills nothing"),
        pytest.param([LOST, build_head(6, 10, 20)], 20, id="a zombie fills nothing"),
        pytest.param([LOST, build_head(7, 10, 15)], 20, id="a part of it"),
        pytest.param([LOST, build_head(7, 10, 20)], None, id="all of it"),
        pytest.param([LOST, build_head(7, 10, 25)], None, id="more"),
        pytest.param([LOST, build_head(7, 10, 20), build_head(7, 40, 50)], 40, id="the next one"),
        pytest.param([LOST, build_head(8, -1, -1)], None, id="a new run begins: it writes again"),
        pytest.param([LOST, build_head(8, 15, 16)], 15, id="a new run has lost one, too"),
    ],
)
def test_the_gap_says_what_is_missing(heads: list[Head], gap: int | None) -> None:
    """Stage one begins a new run when one stays open."""
    assert follow(*heads).gap == gap


NUMBERS = st.integers(-1, 12) | st.integers(-1, OFFSET_MAX - 1)
STATES = st.builds(
    lambda offset, epoch, more: RuleState(offset, epoch, more and offset + more),
    NUMBERS,
    st.integers(0, 4),
    st.none() | st.integers(1, 5),
)
HEADS = st.builds(
    lambda epoch, first, second: build_head(epoch, min(first, second), max(first, second)),
    st.integers(0, 4),
    NUMBERS,
    NUMBERS,
)


@given(STATES, st.lists(HEADS, max_size=12))
@property_test(examples=1000)
def test_the_state_only_grows(state: RuleState, heads: list[Head]) -> None:
    """On any envelopes, from any state: offset and epoch never go back, only an accepted one
    moves the offset, to its end, and an open gap is above it.
    """
    for head in heads:
        decision, after = decide(state, head)
        assert after.epoch == max(state.epoch, head.epoch)
        assert (after.source_offset > state.source_offset) == (decision == "accepted")
        assert after.source_offset == (
            head.through if decision == "accepted" else state.source_offset
        )
        assert after.gap is None or after.gap > after.source_offset
        if decision == "stale":
            assert after == state
        state = after


@given(STATES, HEADS, st.none() | st.integers(0, 20))
@property_test(examples=500)
def test_the_gap_decides_nothing(state: RuleState, head: Head, gap: int | None) -> None:
    """It is a hint for stage one: with another one, or none, the decision is the same."""
    decision, after = decide(state, head)
    other_decision, other = decide(state._replace(gap=gap), head)
    assert (decision, after.source_offset, after.epoch) == (
        other_decision,
        other.source_offset,
        other.epoch,
    )


@given(STATES, HEADS)
@property_test(examples=500)
def test_what_comes_again_is_a_duplicate(state: RuleState, head: Head) -> None:
    """Or what it was before, if it was dropped."""
    decision, after = decide(state, head)
    again, unchanged = decide(after, head)
    assert again == ("duplicate" if decision == "accepted" else decision)
    assert unchanged == after
