"""The model explored to its end in the short form, and every mutant caught; `python -m proof --long` is the same at full length."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType

import pytest

from deduplicator import rule, transaction
from proof.explore import Explorer
from proof.forms import LONG, NOT_MODELLED, SHORT, expected, explored
from proof.mutants import MUTANTS, Mutant, catch, mutated, sound
from proof.service import Service
from proof.world import Shape, Shell
from tests import test_rule

REACHED: dict[str, set[str]] = {}
"""By world; what is explored once is not explored again."""
CAUGHT: dict[str, str] = {}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The service warns of every fault that it meets; here there are thousands."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", SHORT)
def test_every_state_holds_and_leads_to_a_complete_copy(name: str) -> None:
    """Breadth first to the end: no invariant violated, and from every state the copy completes when faults stop."""
    result, _ = explored("short", name)
    assert result.violation == "", "\n".join(result.story)
    assert result.complete
    REACHED[name] = set(result.reached)


def test_every_rule_every_transition_and_every_crash_point_was_reached() -> None:
    """What was never reached was not proved: the worlds above together made all of it happen."""
    for name in SHORT:
        REACHED[name] = REACHED.get(name) or set(explored("short", name)[0].reached)  # the tests above may not have been asked for
    assert sorted(expected() - set().union(*REACHED.values())) == []


def test_what_the_model_leaves_out_is_in_the_tables() -> None:
    """The list of transitions that no model reaches names real ones, each with a reason, and may only shrink."""
    assert set(NOT_MODELLED) == {"transaction: new, in doubt", "run: running, grown", "run: running, truncated", "run: running, lost",
                                 "run: running, lagging"}
    assert ("new", "in doubt") in transaction.NEXT


def test_the_long_form_has_what_the_proof_promises() -> None:
    """Two partitions of three records with a gap, two workers, every kind of fault: nothing of it was dropped to be faster."""
    assert any(shape.source == ((0, 1, 3), (0, 2, 3)) and shape.workers == 2 and {"kill two", "pause", "in doubt"} <= shape.faults for shape in LONG.values())
    assert {"lose", "zombie", "kill one", "kill two", "pause", "in doubt", "torn"} <= set().union(*(shape.faults for shape in LONG.values()))


def unit_scenarios(mutant: Mutant) -> str:
    """Which scenario of `test_rule` or which look at the table notices; empty when none does."""
    module: ModuleType = next(iter(mutated(mutant).values()))
    if mutant.module == "deduplicator.transaction":
        return "" if all(state == "new" for (_, event), state in module.NEXT.items() if event == "in doubt") else "test_transaction_table"
    test_rule.decide = module.decide
    try:
        for name, scenario in vars(test_rule).items():
            if name.startswith("test_the_") and not hasattr(scenario, "hypothesis"):
                try:
                    scenario()
                except AssertionError:
                    return f"test_rule.{name}"
    finally:
        test_rule.decide = rule.decide
    return ""


@pytest.mark.long  # it proves the model, which proves the rule
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_is_caught(mutant: Mutant) -> None:
    """One line wrong, and the model says which invariant breaks; what loses nothing is caught by a unit scenario."""
    result = catch(mutant)
    caught = f"model {result.violation.split(':')[0]}" if result.violation else unit_scenarios(mutant) if mutant.unit else ""
    assert caught, f"{mutant.name} was not noticed in {result.states:,} states"
    CAUGHT[mutant.name] = caught


@pytest.mark.long
def test_there_are_enough_mutants_and_each_world_is_sound_without_its_own() -> None:
    """The same small worlds with nothing wrong in them hold: what was caught was the mutant. Prints the table."""
    assert len(MUTANTS) >= 20
    for shape in set(map(sound, MUTANTS)):
        assert Explorer(shape, Service()).run(10_000).violation == ""
    for name, layer in CAUGHT.items():
        print(f"{layer:<45} {name}")


def test_an_out_of_date_mutant_is_noticed() -> None:
    """When the line that a mutant changes is written anew, the mutant fails instead of testing nothing."""
    with pytest.raises(ValueError, match="out of date"):
        mutated(replace(MUTANTS[0], text="a line that nobody wrote"))


@pytest.mark.parametrize("faults", ["torn, alive"])
def test_a_worker_that_lives_through_a_torn_transaction_is_not_healed(faults: str) -> None:
    """A limit, kept in view: only an assignment compares the frontier with the data, so such a worker has to be restarted."""
    assert Explorer(Shape(((0, 1, 3),), 1, frozenset({faults}), 1)).run(50_000).violation.startswith(("L1", "L2"))


def test_the_check_at_the_start_must_wait_for_undecided_output() -> None:
    """Markers of one transaction are written one after the other: a check that does not wait takes committed records for lost."""
    shape = Shape(((0, 1, 3),), 2, frozenset({"rebalance"}), 1, Shell(waits_for_output=False))
    result = Explorer(shape).run(50_000)
    assert result.violation.startswith("I6: DestinationTruncated")
    assert result.story[-1] == "rebalance"
