"""The rule: against a naive twin over random streams, and against a stage one that goes wrong in
every way. (`test_rule_stories` has each of its five sentences as a story.)

The twin is written from the numbered rules in `deduplicator.rule`'s docstring, one record at a time
and nothing clever, so that whoever reads both can see that they say the same.
"""

from __future__ import annotations

import random

from hypothesis import example, given
from hypothesis import strategies as st

from common.frontier import Hole, Link, RuleState
from common.origin import Origin
from deduplicator.rule import Decision, decide
from tests.harness.properties import property_test
from tests.harness.task_attempts import StageOne, make_origin

FRESH = RuleState(-1, 0, None)


def twin(state: RuleState, origins: list[Origin]) -> Decision:
    """The five rules, word for word."""
    frontier, epoch, link, hole = state
    accepted, duplicates, stale, holes = [], 0, 0, 0
    for position, record in enumerate(origins):
        o, e, b, s = record.source_offset, record.epoch, record.attempt, record.sequence
        if e < epoch:  # 1. older than the state's epoch: stale
            stale += 1
            continue
        if e > epoch:  # 2. newer: take the epoch over; nothing is linked yet, and no hole is open
            epoch = e
            link = hole = None
        begins = s == 0 and (hole is None or o < hole.first)
        follows = (
            link is not None
            and b == link.attempt
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


def generate_origins(seed: int, count: int) -> list[Origin]:
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
@property_test(examples=600)
def test_any_stream_is_decided_as_the_naive_twin_decides_it(
    state: RuleState, origins: list[Origin]
) -> None:
    """From any state, sensible or not, and on any records: the same decision, field by field."""
    assert decide(state, origins) == twin(state, origins)


@given(st.integers(0, 2**32))
@property_test(examples=600)
def test_runs_with_retries_holes_and_zombies_are_decided_as_the_naive_twin_decides_them(
    seed: int,
) -> None:
    """On streams as stage one writes them, where long chains of links are common, the twin agrees
    too.
    """
    stream = generate_origins(seed, 60)
    assert decide(FRESH, stream) == twin(FRESH, stream)


@given(st.integers(0, 2**32), st.booleans())
@example(159, False)  # a rule that remembers the lowest dropped offset alone loses a record here
@property_test(examples=1000)
def test_nothing_is_lost_whatever_stage_one_writes(seed: int, compacts: bool) -> None:
    """Stragglers of the same batch, zombies, two runs of one epoch, and attempts that number their
    records differently because the source was compacted: what is accepted is at every moment the
    source's beginning, but for what it no longer has; and a new run heals.
    """
    chance = random.Random(seed)
    visible = sorted(chance.sample(range(14), chance.randint(5, 12)))
    state, accepted, stage_one = FRESH, [], StageOne(visible, chance, compacts)
    for _ in range(80):
        record = stage_one.step(state)
        if record is not None:
            decision = decide(state, [record])
            state = decision.state
            accepted += [record.source_offset] * len(decision.accepted)
            copied = [offset for offset in accepted if offset in visible]
            assert accepted == sorted(set(accepted))
            assert copied == visible[: len(copied)], f"{accepted} of {visible}, after {record}"
    healed = decide(
        state,
        [
            make_origin(offset, state.epoch + 9, 1, number)
            for number, offset in enumerate(offset for offset in visible if offset > state.frontier)
        ],
    )
    assert healed.state.frontier == visible[-1]


@given(st.integers(0, 2**32), st.integers(0, 60))
@property_test(examples=300)
def test_where_a_batch_is_cut_changes_nothing(seed: int, cut: int) -> None:
    """A round takes whatever is there, so deciding in two parts must come to the same as deciding
    at once.
    """
    stream = generate_origins(seed, 60)
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
@property_test(examples=300)
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
