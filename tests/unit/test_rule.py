"""The rule: against a naive twin over random streams, against a stage one that goes wrong in every
way, and each of its five sentences as a story.

The twin is written from the numbered rules in `deduplicator.rule`'s docstring, one record at a time
and nothing clever, so that whoever reads both can see that they say the same.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from common.frontier import Hole, Link, RuleState
from common.origin import Origin
from deduplicator.rule import Decision, decide
from tests.harness.task_attempts import StageOne, make_origin

FRESH = RuleState(-1, 0, None)


def run(start: RuleState, *records: tuple[int, int, int, int]) -> Decision:
    """Decide records given as (offset, epoch, batch, sequence)."""
    return decide(start, [make_origin(*record) for record in records])


def twin(state: RuleState, origins: list[Origin]) -> Decision:
    """The five rules, word for word."""
    frontier, epoch, link, hole = state
    accepted, duplicates, stale, holes = [], 0, 0, 0
    for position, record in enumerate(origins):
        o, e, b, s = record.source_offset, record.epoch, record.batch, record.sequence
        if e < epoch:  # 1. older than the state's epoch: stale
            stale += 1
            continue
        if e > epoch:  # 2. newer: take the epoch over; nothing is linked yet, and no hole is open
            epoch = e
            link = hole = None
        begins = s == 0 and (hole is None or o < hole.first)
        follows = (
            link is not None
            and b == link.batch
            and s == link.sequence + 1
            and o > link.source_offset
        )
        if o <= frontier:  # 3. duplicate; if it is at or beyond the link, it becomes the link
            duplicates += 1
            if link is None or o >= link.source_offset:
                link = Link(o, b, s)
        # 4. accept; it is the frontier and the link, and what it has reached of the hole is filled
        elif begins or follows:
            accepted.append(position)
            frontier = o
            link = Link(o, b, s)
            if hole is not None and o >= hole.first:
                hole = Hole(o + 1, hole.last) if o < hole.last else None
        else:  # 5. hole: it is open from the lowest to the highest offset that was dropped
            holes += 1
            hole = Hole(o, o) if hole is None else Hole(min(o, hole.first), max(o, hole.last))
    return Decision(RuleState(frontier, epoch, link, hole), accepted, duplicates, stale, holes)


def written(seed: int, count: int) -> list[Origin]:
    """What stage one could write: runs with growing epochs, batches, retries, lost records, and
    zombies in between.
    """
    chance = random.Random(seed)
    visible = sorted(chance.sample(range(12), chance.randint(1, 9)))
    runs: list[tuple[int, list[Origin]]] = []
    for epoch in range(1, chance.randint(2, 4)):
        position = chance.randint(0, len(visible))
        records: list[Origin] = []
        batch = epoch * 10
        while position < len(visible) and len(records) < 20:
            size, batch = chance.randint(1, 4), batch + 1
            task = [
                make_origin(o, epoch, batch, s)
                for s, o in enumerate(visible[position : position + size])
            ]
            for attempt in range(chance.randint(1, 3)):
                records += [record for record in task if attempt == 2 or chance.random() < 0.7]
            position += size
        runs.append((epoch, records))
    stream: list[Origin] = []
    while any(records for _, records in runs) and len(stream) < count:
        _, records = chance.choice(runs)
        if records:
            stream.append(records.pop(0))
    return stream


ANY_ORIGIN = st.builds(
    make_origin, st.integers(0, 6), st.integers(0, 3), st.integers(0, 2), st.integers(0, 4)
)
ANY_LINK = st.none() | st.builds(Link, st.integers(0, 6), st.integers(0, 2), st.integers(0, 4))
ANY_HOLE = st.none() | st.builds(
    lambda first, more: Hole(first, first + more), st.integers(0, 6), st.integers(0, 4)
)
ANY_STATE = st.builds(RuleState, st.integers(-1, 5), st.integers(0, 2), ANY_LINK, ANY_HOLE)


@given(ANY_STATE, st.lists(ANY_ORIGIN, max_size=30))
@settings(max_examples=600, deadline=None)
def test_any_stream_is_decided_as_the_naive_twin_decides_it(
    state: RuleState, origins: list[Origin]
) -> None:
    """From any state, sensible or not, and on any records: the same decision, field by field."""
    assert decide(state, origins) == twin(state, origins)


@given(st.integers(0, 2**32))
@settings(max_examples=600, deadline=None)
def test_runs_with_retries_holes_and_zombies_are_decided_as_the_naive_twin_decides_them(
    seed: int,
) -> None:
    """On streams as stage one writes them, where long chains of links are common, the twin agrees
    too.
    """
    stream = written(seed, 60)
    assert decide(FRESH, stream) == twin(FRESH, stream)


@given(st.integers(0, 2**32))
@example(159)  # a rule that remembers the lowest dropped offset alone loses a record here
@settings(max_examples=1000, deadline=None)
def test_nothing_is_lost_whatever_stage_one_writes(seed: int) -> None:
    """Stragglers of the same batch, zombies, and two runs of one epoch: what is accepted is at
    every moment the source's beginning, and a new run heals.
    """
    chance = random.Random(seed)
    visible = sorted(chance.sample(range(14), chance.randint(5, 12)))
    state, accepted, stage_one = FRESH, [], StageOne(visible, chance)
    for _ in range(80):
        record = stage_one.step(state)
        if record is not None:
            decision = decide(state, [record])
            state, accepted = (
                decision.state,
                accepted + [record.source_offset] * len(decision.accepted),
            )
            assert accepted == visible[: len(accepted)], f"{accepted} of {visible}, after {record}"
    healed = decide(
        state,
        [
            make_origin(offset, state.epoch + 9, 1, number)
            for number, offset in enumerate(visible[len(accepted) :])
        ],
    )
    assert healed.state.frontier == visible[-1]


@given(st.integers(0, 2**32), st.integers(0, 60))
@settings(max_examples=300, deadline=None)
def test_where_a_batch_is_cut_changes_nothing(seed: int, cut: int) -> None:
    """A round takes whatever is there, so deciding in two parts must come to the same as deciding
    at once.
    """
    stream = written(seed, 60)
    whole, first = decide(FRESH, stream), decide(FRESH, stream[:cut])
    second = decide(first.state, stream[cut:])
    assert second.state == whole.state
    assert (
        first.accepted + [cut + position for position in second.accepted if cut <= len(stream)]
        == whole.accepted
    )
    assert first.duplicates + second.duplicates == whole.duplicates
    assert first.stale + second.stale == whole.stale
    assert first.holes + second.holes == whole.holes


@given(ANY_STATE, st.lists(ANY_ORIGIN, max_size=30))
@settings(max_examples=300, deadline=None)
def test_every_record_is_accepted_or_counted(state: RuleState, origins: list[Origin]) -> None:
    """No record goes missing in the rule itself, and nothing at or below the frontier is ever
    accepted.
    """
    decision = decide(state, origins)
    assert len(decision.accepted) + decision.duplicates + decision.stale + decision.holes == len(
        origins
    )
    offsets = [origins[position].source_offset for position in decision.accepted]
    assert offsets == sorted(set(offsets))
    assert all(offset > state.frontier for offset in offsets)
    assert decision.state.frontier == max([state.frontier, *offsets])


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
