"""`make simulate` (SEED=, RUNS=, SHRINK=1): runs one schedule for each seed. The exit code is 1
when a schedule violates what must be true.

A seed always gives the same schedule. With `--planted`, a known defect is put into the service
first; then the simulator has to find a violation.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import logging
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from unittest import mock

from tools.simulator import defect_probes, planted_defects

CHUNK_SEEDS, FIRST_ONLY_CHUNK_SEEDS = 50, 10
SIMULATED = ("common", "deduplicator", "replicator", "reo", "tools/simulator")
"""The folders whose code a schedule runs."""


@dataclass(slots=True)
class CampaignResult:
    """The results of some seeds, added up."""

    runs: int = 0
    compared: int = 0
    steps: int = 0
    virtual_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    violations: list[tuple[int, str, list[str]]] = field(default_factory=list)
    """The seed, the violation, and the story."""
    reached: dict[str, list[int]] = field(default_factory=dict)
    """The seeds in which a defect makes a difference (`defect_probes`), by its name."""

    def add(self, other: CampaignResult) -> None:
        """Add the results of other seeds."""
        self.runs += other.runs
        self.compared += other.compared
        self.steps += other.steps
        self.virtual_s += other.virtual_s
        self.faults += other.faults
        self.ends += other.ends
        self.violations += other.violations
        for name, seeds in other.reached.items():
            self.reached.setdefault(name, []).extend(seeds)


def run_seeds(seeds: Sequence[int], first_only: bool = False) -> CampaignResult:
    """Run the schedules of these seeds, one after the other. With `first_only`, end at the first
    violation.

    Nearly all objects of a schedule live as long as it does: they are collected after it, not by
    its simulated processes.
    """
    from deduplicator import worker
    from tools.simulator import plan, run

    campaign_result = CampaignResult()
    for seed in seeds:
        defect_probes.reached.clear()
        gc.freeze()
        gc.disable()
        with mock.patch.object(worker, "pause_gc", return_value=nullcontext(lambda: None)):
            result = run.run_plan(plan.draw_plan(seed))
        gc.enable()
        gc.collect()
        for name in defect_probes.reached | defect_probes.reached_by_import:
            campaign_result.reached.setdefault(name, []).append(seed)
        campaign_result.runs += 1
        campaign_result.compared += result.compared
        campaign_result.steps += result.steps
        campaign_result.virtual_s += result.virtual_s
        campaign_result.faults += result.faults
        campaign_result.ends[result.end.split(":")[0]] += 1
        if result.violation:
            campaign_result.violations.append((seed, result.violation, result.story))
            if first_only:
                break
    gc.unfreeze()
    return campaign_result


def _begin_worker(planted: Sequence[str], with_probes: bool = False) -> None:
    logging.disable(logging.CRITICAL)
    planted_defects.plant(planted, with_probes)


def format_violation(seed: int, violation: str, story: list[str], plan: object) -> str:
    """The text of a violation, with its story."""
    return "\n".join([f"seed {seed}: {violation}", f"  {plan}", *(f"  {line}" for line in story)])


def shrink_seed(seed: int) -> str:
    """The text of the smallest plan that still has a violation."""
    from tools.simulator import plan, run

    result = run.run_plan(plan.draw_plan(seed))
    if result.violation:
        result = run.shrink(result)
    return format_violation(seed, result.violation or "no violation", result.story, result.plan)


def run_campaign(
    seeds: Sequence[int],
    planted: Sequence[str] = (),
    *,
    with_probes: bool = False,
    first_only: bool = False,
    processes: int = os.cpu_count() or 1,
    seconds: float = 0,
) -> CampaignResult:
    """Run these seeds in several processes, with these defects planted, or their probes. With
    `first_only`, end at the first violation.
    """
    total, started = CampaignResult(), time.monotonic()
    chunk_seeds = CHUNK_SEEDS if not first_only else FIRST_ONLY_CHUNK_SEEDS
    chunks = iter(seeds[begin : begin + chunk_seeds] for begin in range(0, len(seeds), chunk_seeds))
    with ProcessPoolExecutor(
        processes, initializer=_begin_worker, initargs=(planted, with_probes)
    ) as pool:
        waiting: set[Future[CampaignResult]] = set()
        while True:
            while len(waiting) < 2 * processes and (chunk := next(chunks, None)) is not None:
                waiting.add(pool.submit(run_seeds, chunk, first_only))
            if not waiting:
                return total
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                total.add(future.result())
            if (first_only and total.violations) or (
                seconds and time.monotonic() > started + seconds
            ):
                pool.shutdown(cancel_futures=True)
                return total


def print_campaign(total: CampaignResult, seconds: float, should_shrink: bool) -> None:
    """Print the first violations, the totals, and the numbers of faults and ends."""
    for seed, violation, story in total.violations[:10]:
        print(shrink_seed(seed) if should_shrink else format_violation(seed, violation, story, ""))
    print(
        f"{total.runs:,} schedules, {total.faults.total():,} faults of {len(total.faults)} kinds,"
        f" {total.compared:,} records compared, {total.steps:,} steps, {total.virtual_s / 3600:.0f}"
        f" h of virtual time in {seconds:.0f} s ({60 * total.runs / seconds:.0f} schedules a"
        f" minute); violations: {len(total.violations)}"
    )
    for kind, number in total.faults.most_common():
        print(f"  {number:>8,}  {kind}")
    for end, number in total.ends.most_common():
        print(f"  {number:>8,}  ended: {end}")


def read_commit() -> str:
    """The commit that is checked out, with a plus sign when files differ from it."""
    return subprocess.run(
        ["git", "describe", "--always", "--exclude=*", "--dirty=+"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def read_trees() -> str:
    """Names the code that is simulated: results of several commits with the same trees are those of
    one campaign.
    """
    trees = subprocess.run(
        ["git", "rev-parse", *(f"HEAD:{folder}" for folder in SIMULATED)],
        capture_output=True,
        check=True,
    ).stdout
    return hashlib.sha256(trees).hexdigest()[:12]


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make simulate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument(
        "--seconds", type=float, default=0, help="start no new schedules after this time"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--shrink",
        action="store_true",
        help="reduce each schedule with a violation to the smallest one that still has it",
    )
    parser.add_argument(
        "--planted",
        action="append",
        choices=planted_defects.CHOICES,
        metavar="DEFECT",
        help="put this known defect into the service, or `all` of them; several times: one after"
        " the other",
    )
    parser.add_argument(
        "--out", type=Path, help="append the results to this file, as a line of JSON"
    )
    arguments = parser.parse_args()
    seeds = range(arguments.seed, arguments.seed + arguments.runs)
    if arguments.planted:
        return planted_defects.search_planted(
            arguments.planted,
            seeds,
            partial(run_campaign, processes=arguments.processes),
            read_commit(),
            arguments.out,
        )
    started = time.monotonic()
    total = run_campaign(
        seeds,
        processes=arguments.processes,
        seconds=arguments.seconds,
    )
    seconds = time.monotonic() - started
    if arguments.out:
        with arguments.out.open("a") as out:
            fields = {name: getattr(total, name) for name in CampaignResult.__dataclass_fields__}
            campaign = {
                "seconds": seconds,
                "seed": arguments.seed,
                "commit": read_commit(),
                "trees": read_trees(),
            }
            out.write(json.dumps(fields | campaign) + "\n")
    _begin_worker(())
    print_campaign(total, seconds, arguments.shrink)
    return 1 if total.violations else 0


if __name__ == "__main__":
    # the order of a set of strings depends on the hash seed
    if os.environ.get("PYTHONHASHSEED") != "0":
        command = [sys.executable, "-m", "tools.simulator", *sys.argv[1:]]
        os.execve(sys.executable, command, os.environ | {"PYTHONHASHSEED": "0"})  # noqa: S606
    sys.exit(main())
