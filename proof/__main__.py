"""`python -m proof`: the short form; `--long`: the long one; `--mutants`: every mutant and what caught it."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed

from proof.forms import LONG, SHORT, STATES_MAX, expected, explored
from proof.mutants import MUTANTS, catch


def worlds(form: str, states_max: int, processes: int) -> int:
    """All worlds of a form; returns the exit code."""
    names = list(LONG if form == "long" else SHORT)
    reached: Counter[str] = Counter()
    states = steps = wrong = 0
    begun = time.monotonic()
    with ProcessPoolExecutor(processes, max_tasks_per_child=1) as pool:
        waiting = {pool.submit(explored, form, name, states_max): name for name in names}
        for future in as_completed(waiting):
            result, seconds = future.result()
            ended = "to the end" if result.complete else "cut short"
            print(f"{result.states:>10,} states {result.steps:>11,} steps, depth {result.depth:>3}, {seconds:6.1f} s, {ended}: {waiting[future]}", flush=True)
            if result.violation:
                print(f"  VIOLATED {result.violation}\n  " + "\n  ".join(result.story))
            states, steps, wrong = states + result.states, steps + result.steps, wrong + bool(result.violation)
            reached.update(result.reached)
    missing = sorted(expected() - set(reached))
    print(f"{states:>10,} states {steps:>11,} steps, {time.monotonic() - begun:.1f} s; violations: {wrong}; not reached: {', '.join(missing) or 'nothing'}")
    return 1 if wrong or missing else 0


def mutants() -> int:
    """Every mutant; returns the exit code."""
    logging.disable(logging.CRITICAL)
    survived = 0
    for mutant in MUTANTS:
        result = catch(mutant)
        caught = "unit" if mutant.unit and not result.violation else result.violation.split(":")[0]
        survived += not caught
        print(f"{caught or 'SURVIVED':>9}  {result.states:>7,} states  {mutant.name}", flush=True)
    print(f"{len(MUTANTS)} mutants, {survived} survived")
    return 1 if survived else 0


def main() -> int:
    """Run what is asked for."""
    arguments = argparse.ArgumentParser(prog="python -m proof", description=__doc__)
    arguments.add_argument("--long", action="store_true", help="more than a million states")
    arguments.add_argument("--mutants", action="store_true", help="only the mutants")
    arguments.add_argument("--states", type=int, default=STATES_MAX, help=f"most states of one world (default {STATES_MAX:,})")
    arguments.add_argument("--processes", type=int, default=2, help="worlds at a time (default 2)")
    given = arguments.parse_args()
    return mutants() if given.mutants else worlds("long" if given.long else "short", given.states, given.processes)


if __name__ == "__main__":
    sys.exit(main())
