"""Each sentence of the rule as a story of a few records, and what a simpler rule would lose."""

from __future__ import annotations

import pytest

from common.frontier import Hole, Link, RuleState
from deduplicator.rule import Decision, decide
from tests.harness.task_attempts import make_origin
from tests.unit.test_rule import FRESH


def run(start: RuleState, *records: tuple[int, int, int, int]) -> Decision:
    """Decide records given as (offset, epoch, batch, sequence)."""
    return decide(start, [make_origin(*record) for record in records])


def test_the_first_rule_drops_an_older_run() -> None:
    """A zombie's record, even the very next offset with s = 0, is stale and moves nothing."""
    state = RuleState(4, 7, Link(4, 1, 2))
    assert run(state, (5, 6, 1, 0)) == Decision(state, [], 0, 1, 0)


def test_the_second_rule_takes_a_newer_run_over_and_links_nothing() -> None:
    """A record of a newer epoch that is a hole still takes the epoch; the old epoch's link does not
    vouch for it.
    """
    state = RuleState(4, 1, Link(4, 1, 2))
    assert run(state, (5, 2, 1, 3)) == Decision(RuleState(4, 2, None, Hole(5, 5)), [], 0, 0, 1)


def test_the_second_rule_makes_the_old_run_a_zombie_at_once() -> None:
    """After the takeover the old run's next record, which would have been accepted before it, is
    stale.
    """
    decision = run(RuleState(4, 1, Link(4, 1, 2)), (5, 2, 9, 0), (6, 1, 1, 3))
    assert decision == Decision(RuleState(5, 2, Link(5, 9, 0)), [0], 0, 1, 0)


def test_the_third_rule_makes_the_furthest_duplicate_the_link() -> None:
    """A retry repeats 3 and 4, which are there; 5 follows 4 and is accepted although 4 itself was
    not accepted in this epoch.
    """
    decision = run(RuleState(4, 1, None), (3, 2, 9, 0), (4, 2, 9, 1), (5, 2, 9, 2))
    assert decision == Decision(RuleState(5, 2, Link(5, 9, 2)), [2], 2, 0, 0)


def test_the_third_rule_keeps_the_link_when_an_earlier_record_comes_again() -> None:
    """A retry that begins again at 3 does not take the link away from 4: what the first attempt
    wrote after it still follows.
    """
    decision = run(RuleState(4, 2, Link(4, 9, 1)), (3, 2, 9, 0), (5, 2, 9, 2))
    assert decision == Decision(RuleState(5, 2, Link(5, 9, 2)), [1], 1, 0, 0)


def test_the_fourth_rule_accepts_the_beginning_of_a_batch_after_any_gap() -> None:
    """Offsets may have legal gaps (compaction, markers): s = 0 is believed, however far the offset
    is.
    """
    assert run(RuleState(4, 1, Link(4, 1, 2)), (90, 1, 2, 0)).accepted == [0]


def test_the_fourth_rule_accepts_what_follows_in_sequence_over_a_gap_of_offsets() -> None:
    """Sequence s + 1 of the same batch is the next visible record, although offsets between are
    missing.
    """
    assert run(RuleState(4, 1, Link(4, 1, 2)), (9, 1, 1, 3)).accepted == [0]


def test_the_fifth_rule_drops_what_follows_a_lost_record_until_the_retry() -> None:
    """Record 1 was lost, 2 is a hole; the task's retry writes all again, then 1 and 2 are accepted,
    in order, once.
    """
    first = run(FRESH, (0, 1, 1, 0), (2, 1, 1, 2))
    assert (first.accepted, first.holes) == ([0], 1)
    assert run(first.state, (0, 1, 1, 0), (1, 1, 1, 1), (2, 1, 1, 2)).accepted == [1, 2]


def test_the_fifth_rule_does_not_move_the_link() -> None:
    """Two holes in a row do not follow one another into being accepted."""
    decision = run(RuleState(4, 1, Link(4, 1, 0)), (6, 1, 1, 2), (7, 1, 1, 3))
    assert decision == Decision(RuleState(4, 1, Link(4, 1, 0), Hole(6, 7)), [], 0, 0, 2)


def test_the_fifth_rule_keeps_the_hole_open_for_the_beginning_of_a_later_batch() -> None:
    """Record 1 is missing. Batch 2 cannot begin behind it, in the same round or after a commit; the
    retry of batch 1 begins below it, and can.
    """
    first = run(FRESH, (0, 1, 1, 0), (2, 1, 1, 2), (3, 1, 2, 0))
    assert (first.accepted, first.holes, first.state.hole) == ([0], 2, Hole(2, 3))
    assert run(first.state, (4, 1, 3, 0)).holes == 1
    assert run(FRESH, (1, 1, 1, 1), (0, 1, 1, 0)).accepted == [1]


def test_the_fifth_rule_closes_the_hole_at_its_last_record_only() -> None:
    """2 and 3 were dropped. A straggler of batch 1 fills 2 alone: 3 is still missing, so batch 3
    cannot begin at 4.
    """
    dropped = run(RuleState(1, 1, Link(1, 1, 1)), (2, 1, 2, 1), (3, 1, 2, 2)).state
    assert dropped.hole == Hole(2, 3)
    filled = run(dropped, (2, 1, 1, 2))
    assert (filled.accepted, filled.state.hole) == ([0], Hole(3, 3))
    assert run(filled.state, (4, 1, 3, 0)).holes == 1
    assert run(filled.state, (3, 1, 1, 3)).state.hole is None


def test_the_second_rule_forgets_the_hole_of_the_older_run() -> None:
    """The newer run begins at the frontier and writes all again: its first record is accepted, and
    no hole is open.
    """
    decision = run(RuleState(4, 1, None, Hole(6, 9)), (5, 2, 1, 0))
    assert decision == Decision(RuleState(5, 2, Link(5, 1, 0)), [0], 0, 0, 0)


def test_the_third_rule_makes_a_duplicate_at_the_links_offset_the_link() -> None:
    """A straggler wrote past the end that Spark noted: its record at 2 is repeated by batch 2,
    whose next record then follows.
    """
    decision = run(RuleState(2, 1, Link(2, 1, 2)), (2, 1, 2, 0), (3, 1, 2, 1))
    assert decision == Decision(RuleState(3, 1, Link(3, 2, 1)), [1], 1, 0, 0)


def test_the_batch_is_needed() -> None:
    """Batch 2 lost its first two records; its third has s = 2, and batch 1 ended with s = 1:
    without b it would be believed.
    """
    after_first = run(FRESH, (0, 1, 1, 0), (1, 1, 1, 1)).state
    assert run(after_first, (4, 1, 2, 2)).holes == 1
    without_batch = run(after_first, (4, 1, 1, 2))
    assert without_batch.accepted == [0], (
        "the same record in the same batch is the next one: only b tells them apart"
    )


def test_the_link_offset_is_needed() -> None:
    """A record that follows in batch and sequence but not in offset is not the next one."""
    assert run(RuleState(2, 1, Link(8, 1, 0)), (5, 1, 1, 1)).holes == 1


def test_a_highest_seen_rule_loses_a_record_where_this_one_does_not() -> None:
    """The producer fails one batch and delivers the next; the retry brings the late records.
    Highest-seen drops them for ever.
    """
    stream = [
        make_origin(0, 1, 1, 0),
        make_origin(2, 1, 1, 2),
        make_origin(0, 1, 1, 0),
        make_origin(1, 1, 1, 1),
        make_origin(2, 1, 1, 2),
    ]
    highest, kept = -1, []
    for record in stream:
        if record.source_offset > highest:
            highest = record.source_offset
            kept.append(highest)
    assert kept == [0, 2], "record 1 is lost: kafka-reo's rule"
    assert [stream[position].source_offset for position in decide(FRESH, stream).accepted] == [
        0,
        1,
        2,
    ]


@pytest.mark.parametrize("epoch", [0, 1])
def test_an_empty_batch_changes_nothing(epoch: int) -> None:
    """Nothing read, nothing decided."""
    state = RuleState(3, epoch, Link(3, 1, 1))
    assert decide(state, []) == Decision(state, [], 0, 0, 0)
