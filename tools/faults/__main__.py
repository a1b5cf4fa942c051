"""`make faults`: a campaign (SEED=, RUNS=, ONLY=, OUT=). Each run prints a line when it ends; exit
code 1 when one fails.

Without SEED a random one is used and printed. Every story runs once, in an order that the seed
decides, then random stories; the same SEED, RUNS and ONLY run the same stories with the same
timing. `--replay` runs one story with the seed of one run; `--part` splits a campaign between
several processes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.harness.kafka import Clusters, speed_up_jvms
from tools.faults.judged_run import Result, run_story
from tools.faults.run import Story
from tools.faults.stories import ALL
from tools.faults.testbed import start_clusters


def choose_runs(seed: int, runs: int, only: str) -> Iterator[tuple[Story, int]]:
    """Each run's story and seed."""
    stories = [story for name, story in ALL.items() if only.lower() in name.lower()]
    if not stories:
        sys.exit(f"no story has {only!r} in its name; the stories are:\n  " + "\n  ".join(ALL))
    rng = random.Random(seed)  # noqa: S311
    rng.shuffle(stories)
    for number in range(runs or len(stories)):
        yield (
            stories[number] if number < len(stories) else rng.choice(stories),
            rng.randrange(10**6),
        )


class Testbeds:
    """The shared pair of brokers, started when a story first needs it; other testbeds run for one
    story.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.stack = stack
        self.shared: Clusters | None = None

    def run_story(self, story: Story, seed: int) -> Result:
        """Run a story on the brokers that it needs; delete its folder afterwards, unless it
        failed.
        """
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        if story.brokers == "shared":
            self.shared = self.shared or self.stack.enter_context(
                start_clusters(self.folder / "shared", "shared")
            )
            result = run_story(story, self.shared, seed, folder)
        else:
            with start_clusters(folder, story.brokers) as own:
                result = run_story(story, own, seed, folder)
        if result.is_good:
            shutil.rmtree(folder, ignore_errors=True)
        return result


def main() -> int:
    """Run the stories; returns 1 when one fails."""
    arguments = argparse.ArgumentParser(prog="make faults")
    arguments.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    arguments.add_argument("--runs", type=int, default=0, help="default: each story once")
    arguments.add_argument("--only", default="", help="part of the names of the stories")
    arguments.add_argument(
        "--part",
        default="1/1",
        help="run only this part of the campaign: 2/3 is every third run, from the second on",
    )
    arguments.add_argument(
        "--replay", action="store_true", help="the seed is the seed of one run, not of a campaign"
    )
    arguments.add_argument("--out", type=Path, help="append a JSON line for each run to this file")
    arguments.add_argument(
        "--keep", action="store_true", help="keep the folder with the logs of failed runs"
    )
    options = arguments.parse_args()
    speed_up_jvms()
    folder = Path(tempfile.mkdtemp(prefix="reo-faults-"))
    runs = list(choose_runs(options.seed, 0 if options.replay else options.runs, options.only))
    if options.replay:
        runs = [(story, options.seed) for story, _ in runs]
    part, parts = map(int, options.part.split("/"))
    runs = runs[part - 1 :: parts]
    print(
        f"seed {options.seed}, part {options.part}, {len(runs)} runs, {os.cpu_count()} cores",
        flush=True,
    )
    failures = 0
    with ExitStack() as stack:
        if not options.keep:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stands = Testbeds(folder, stack)
        for number, (story, seed) in enumerate(runs, 1):
            result = stands.run_story(story, seed)
            failures += not result.is_good
            hits = ", ".join(f"{count} × {what}" for what, count in result.hits.items())
            print(
                f"{number}/{len(runs)} {story.name}, seed {seed}: {hits}; {result.records} records,"
                f" {result.duplicates} duplicates, {result.gaps} gaps, {result.stale} stale,"
                f" {result.torn} torn, {result.seconds} s: {result.verdict}",
                flush=True,
            )
            if options.out:
                with options.out.open("a") as out:
                    out.write(json.dumps(result.to_dict()) + "\n")
    print(f"{len(runs) - failures} of {len(runs)} ended as expected")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
