"""The production rule in a model of everything around it: by chance, in many schedules, and whole,
in small worlds. Neither finds a lost, repeated or reordered record; and both find it when a part of
the rule is wrong.
"""

from __future__ import annotations

from collections import Counter

import pytest

from common.envelope import Head
from deduplicator.rule import Decision, RuleState, decide
from tests.harness.properties import HAS_ALL_EXAMPLES
from tests.harness.rule_model.envelopes import Decide, Variant
from tests.harness.rule_model.schedule import FAULTS, Schedule
from tests.harness.rule_model.small_worlds import (
    FILTERED,
    REVISED,
    Broken,
    Truth,
    explore_compacted,
    explore_two_worlds,
    list_subsets,
)

SCHEDULES = 10_000 if HAS_ALL_EXAMPLES else 1_000
LOSES, SETS_BACK, FILTERS, REVISES = ({fault} for fault in FAULTS)
FAULT_SETS = (
    set[str](),
    LOSES,
    LOSES | SETS_BACK,
    LOSES | FILTERS,
    LOSES | REVISES,
    LOSES | SETS_BACK | FILTERS,
    {*FAULTS},
)
Decided = tuple[Decision, RuleState]


def find_violation(faults: set[str], variant: Variant, schedules: int) -> str | None:
    """The first schedule in which something goes wrong."""
    for seed in range(schedules):
        violation = Schedule(seed, sorted(faults), variant).run().violation
        if violation:
            return f"seed {seed}: {violation}"
    return None


@pytest.mark.parametrize(
    "faults", FAULT_SETS, ids=lambda faults: "+".join(sorted(faults)) or "none"
)
def test_no_record_is_lost_or_repeated(faults: set[str]) -> None:
    """Zombies, overlapping runs, attempts of a task, lost, late, repeated and reordered envelopes,
    compaction between attempts, failed transactions; and what `faults` adds.
    """
    assert find_violation(faults, Variant(), SCHEDULES) is None


def test_the_schedules_show_every_decision() -> None:
    """Each line of the rule's table is reached often, most schedules come to their end, and most of
    them have several runs.
    """
    outcomes = [Schedule(seed, FAULTS, Variant()).run() for seed in range(300)]
    decisions = Counter(decision for outcome in outcomes for decision in outcome.decisions)
    assert min(decisions[name] for name in ("accepted", "duplicate", "stale", "gap")) > 100
    assert sum(outcome.is_stopped for outcome in outcomes) in range(1, 60)
    assert sum(outcome.runs > 1 for outcome in outcomes) > 100


# what a wrong rule would do: each is the right one, with another head or another answer


def take_equal_for_gap(state: RuleState, head: Head) -> Decided:
    """`after < offset` instead of `after ≤ offset`."""
    if head.epoch >= state.epoch and state.source_offset == head.after < head.through:
        return "gap", state._replace(epoch=head.epoch)
    return decide(state, head)


def accept_over_one(state: RuleState, head: Head) -> Decided:
    """`after ≤ offset + 1`."""
    return decide(state, head._replace(after=max(-1, head.after - 1)))


def accept_over_any_gap(state: RuleState, head: Head) -> Decided:
    """`after` is not looked at."""
    return decide(state, head._replace(after=-1))


def accept_newer_over_gap(state: RuleState, head: Head) -> Decided:
    """A newer run is believed."""
    return decide(state, head._replace(after=-1) if head.epoch > state.epoch else head)


def compare_no_epochs(state: RuleState, head: Head) -> Decided:
    """An older run's is as good as a newer one's."""
    return decide(state, head._replace(epoch=max(state.epoch, head.epoch)))


def take_any_epoch(state: RuleState, head: Head) -> Decided:
    """An older epoch, too, becomes the state's."""
    decision, after = decide(state, head)
    return decision, after._replace(epoch=head.epoch)


def drop_same_epoch(state: RuleState, head: Head) -> Decided:
    """`<=` instead of `<`."""
    return ("stale", state) if head.epoch <= state.epoch else decide(state, head)


def take_no_epoch(state: RuleState, head: Head) -> Decided:
    """A newer epoch is not noted."""
    decision, after = decide(state, head)
    return decision, after._replace(epoch=state.epoch)


def move_less(state: RuleState, head: Head) -> Decided:
    """`through - 1`."""
    decision, after = decide(state, head)
    return decision, after._replace(source_offset=after.source_offset - (decision == "accepted"))


def move_more(state: RuleState, head: Head) -> Decided:
    """`through + 1`."""
    decision, after = decide(state, head)
    return decision, after._replace(source_offset=after.source_offset + (decision == "accepted"))


def move_back(state: RuleState, head: Head) -> Decided:
    """A duplicate moves the frontier, too."""
    decision, after = decide(state, head)
    return decision, after._replace(
        source_offset=head.through
    ) if decision == "duplicate" else after


def move_over_gap(state: RuleState, head: Head) -> Decided:
    """What is dropped moves the frontier, too."""
    decision, after = decide(state, head)
    return decision, after._replace(source_offset=head.through) if decision == "gap" else after


WRONG_RULES: tuple[tuple[Decide, set[str]], ...] = (
    (take_equal_for_gap, LOSES),
    (accept_over_one, LOSES),
    (accept_over_any_gap, LOSES),
    (compare_no_epochs, LOSES | FILTERS),
    (compare_no_epochs, LOSES | REVISES),
    (take_any_epoch, LOSES | FILTERS),
    (drop_same_epoch, LOSES),
    (take_no_epoch, LOSES),
    (move_less, LOSES),
    (move_more, LOSES),
    (move_back, LOSES),
    (move_over_gap, LOSES),
)
WRONG_PARTS: dict[str, tuple[Variant, set[str]]] = {
    "all records of an envelope are written": (
        Variant(choose_records=lambda envelope, _: envelope.records),
        LOSES,
    ),
    "a run begins at once": (Variant(installs_epoch=False), LOSES | REVISES),
    "a run does not look at the last copied record": (
        Variant(compares_history=False),
        LOSES | REVISES,
    ),
    "a destination that was set back has no epoch": (
        Variant(keeps_epoch=False),
        LOSES | SETS_BACK | FILTERS,
    ),
    "a task follows the offset before its first one": (
        Variant(after_of_task=lambda begin, _: begin - 1),
        LOSES,
    ),
    "a task follows nothing": (Variant(after_of_task=lambda *_: -1), LOSES),
}
MUTANTS = {
    f"{wrong.__name__} {'+'.join(sorted(faults))}": (Variant(wrong), faults)
    for wrong, faults in WRONG_RULES
} | WRONG_PARTS


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_mistake_is_found_by_chance(name: str) -> None:
    """Each breaks the invariant in one of the first schedules: the model has teeth."""
    variant, faults = MUTANTS[name]
    assert find_violation(faults, variant, 4_000) is not None


def test_every_order_of_true_envelopes_is_right() -> None:
    """Each source of three offsets, and each way to compact it."""
    sources = [(first, then) for first in list_subsets((0, 1, 2)) for then in list_subsets(first)]
    assert len(sources) == 27
    assert sum(explore_compacted(decide, *source) for source in sources) == 27 * (
        1 + 24 + 24**2 + 24**3
    )


@pytest.mark.parametrize(
    "wrong",
    [
        take_equal_for_gap,
        accept_over_one,
        accept_over_any_gap,
        accept_newer_over_gap,
        move_less,
        move_more,
        move_back,
        move_over_gap,
        drop_same_epoch,
    ],
)
def test_a_planted_mistake_is_found_in_a_small_world(wrong: Decide) -> None:
    """Also one that chance does not meet, because no run begins without its epoch."""
    with pytest.raises(Broken):
        explore_compacted(wrong, (0, 1, 2), (0, 1, 2))


@pytest.mark.parametrize(("truth", "is_revised"), [(REVISED, True), (FILTERED, False)])
def test_two_worlds_are_never_mixed(truth: Truth, is_revised: bool) -> None:
    """A source that has lost its records from offset 1 on, and grown again; and another filter.
    Whatever is still unread, or comes later: up to where the new run began, the destination has the
    old world, and after it the new one.
    """
    assert explore_two_worlds(decide, truth, is_revised, installs_epoch=True) > 1000


@pytest.mark.parametrize(
    ("wrong", "installs_epoch"),
    [(decide, False), (compare_no_epochs, True), (take_any_epoch, True)],
)
def test_without_epochs_two_worlds_are_mixed(wrong: Decide, installs_epoch: bool) -> None:
    """A run that does not install its epoch before it begins; a rule that does not compare it."""
    with pytest.raises(Broken):
        explore_two_worlds(wrong, REVISED, is_revised=True, installs_epoch=installs_epoch)
