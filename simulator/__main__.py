"""`make simulate` (SEED=, RUNS=, SHRINK=1): schedules from a seed on, each of which its own seed repeats; exit code 1 when one came out wrong.

With `--planted` a known wrong is put into the service first: then a violation is what is looked for.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from simulator import planted

CHUNK = 50


@dataclass(slots=True)
class Part:
    """What came of some seeds."""

    runs: int = 0
    compared: int = 0
    steps: int = 0
    virtual_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    violations: list[tuple[int, str, list[str]]] = field(default_factory=list)
    """Seed, what is wrong, the story."""

    def add(self, other: Part) -> None:
        """Another part."""
        self.runs += other.runs
        self.compared += other.compared
        self.steps += other.steps
        self.virtual_s += other.virtual_s
        self.faults += other.faults
        self.ends += other.ends
        self.violations += other.violations


def seeds(begin: int, end: int) -> Part:
    """Run these seeds, one after the other."""
    from simulator import plan, run

    part = Part()
    for seed in range(begin, end):
        result = run.perform(plan.drawn(seed))
        part.runs += 1
        part.compared += result.compared
        part.steps += result.steps
        part.virtual_s += result.virtual_s
        part.faults += result.faults
        part.ends[result.end.split(":")[0]] += 1
        if result.violation:
            part.violations.append((seed, result.violation, result.story))
    return part


def _begin_worker(name: str) -> None:
    logging.disable(logging.CRITICAL)
    if name:
        planted.plant(name)


def told(seed: int, violation: str, story: list[str], plan: object) -> str:
    """A violation as a story."""
    return "\n".join([f"seed {seed}: {violation}", f"  {plan}", *(f"  {line}" for line in story)])


def shrunk(seed: int) -> str:
    """The story of the smallest plan that still comes out wrong."""
    from simulator import plan, run

    result = run.perform(plan.drawn(seed))
    if result.violation:
        result = run.shrink(result)
    return told(seed, result.violation or "nothing is wrong", result.story, result.plan)


def campaign(begin: int, runs: int, processes: int, name: str, first_only: bool, seconds: float = 0) -> Part:
    """All seeds, some processes at a time; with `first_only` the end is the first violation."""
    total, started = Part(), time.monotonic()
    chunks = iter(range(begin, begin + runs, CHUNK))
    with ProcessPoolExecutor(processes, initializer=_begin_worker, initargs=(name,)) as pool:
        waiting: set[Future[Part]] = set()
        while True:
            while len(waiting) < 2 * processes and (chunk := next(chunks, None)) is not None:
                waiting.add(pool.submit(seeds, chunk, min(chunk + CHUNK, begin + runs)))
            if not waiting:
                return total
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                total.add(future.result())
            if (first_only and total.violations) or (seconds and time.monotonic() > started + seconds):
                pool.shutdown(cancel_futures=True)
                return total


def main() -> int:
    """Run what is asked for."""
    arguments = argparse.ArgumentParser(prog="make simulate")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--runs", type=int, default=2000)
    arguments.add_argument("--seconds", type=float, default=0, help="begin nothing new after so long")
    arguments.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    arguments.add_argument("--shrink", action="store_true", help="reduce what comes out wrong to the shortest schedule that still does")
    arguments.add_argument("--planted", default="", help="put this known wrong into the service, or `all`, one after the other")
    arguments.add_argument("--out", type=Path, help="a file that gets a JSON line")
    given = arguments.parse_args()
    if given.planted:
        return planted.hunt(given.planted, given.runs, given.processes, campaign, given.out)
    started = time.monotonic()
    total = campaign(given.seed, given.runs, given.processes, "", first_only=False, seconds=given.seconds)
    seconds = time.monotonic() - started
    _begin_worker("")
    for seed, violation, story in total.violations[:10]:
        print(shrunk(seed) if given.shrink else told(seed, violation, story, ""))
    print(f"{total.runs:,} schedules, {total.faults.total():,} faults of {len(total.faults)} kinds, {total.compared:,} records compared, "
          f"{total.steps:,} steps, {total.virtual_s / 3600:.0f} h of virtual time in {seconds:.0f} s ({60 * total.runs / seconds:.0f} schedules a minute); "
          f"wrong: {len(total.violations)}")
    for kind, number in total.faults.most_common():
        print(f"  {number:>8,}  {kind}")
    for end, number in total.ends.most_common():
        print(f"  {number:>8,}  ended: {end}")
    if given.out:
        with given.out.open("a") as out:
            out.write(json.dumps({name: getattr(total, name) for name in Part.__dataclass_fields__} | {"seconds": seconds, "seed": given.seed}) + "\n")
    return 1 if total.violations else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of a set of strings is a decision too
        os.execve(sys.executable, [sys.executable, "-m", "simulator", *sys.argv[1:]], os.environ | {"PYTHONHASHSEED": "0"})  # noqa: S606
    sys.exit(main())
