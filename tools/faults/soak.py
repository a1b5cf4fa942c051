"""`make soak`: hours of load with faults at a low rate, and whether memory, file descriptors and
threads stay flat (MINUTES=, SEED=, OUT=).

A fault replaces a process by a new one, so the samples are taken by kind of process, and the slope
is that of a line through the second half: a leak shows as a slope, a replaced process does not. No
fault replaces the supervisor, so its samples are the clearest. At the end the judge compares every
record.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import linear_regression, mean

from tests.harness.service import Service
from tools.bench.processes import usage_of
from tools.faults.judged_run import run_story
from tools.faults.run import Run, Story
from tools.faults.stories.mixed import cut_connections, freeze_process, lose_request, make_half_open
from tools.faults.testbed import start_clusters

SAMPLE_S = 10.0
FAULT_EVERY_S = 120
RECORDS_PER_S = 500
FEWEST_SAMPLES = 6
COURSE_EVERY_S = 300
KINDS = ("supervisor", "replicator", "jvm", "deduplicator")
Sample = tuple[float, float, int, int]


def sample_process(pid: int, began: float) -> Sample | None:
    """(hours, resident MB, descriptors, threads); None when it has just ended."""
    try:
        folders = [len(list(Path(f"/proc/{pid}/{kind}").iterdir())) for kind in ("fd", "task")]
    except OSError:
        return None
    return (time.monotonic() - began) / 3600, usage_of([pid]).rss_mb, folders[0], folders[1]


def sample_service(service: Service, samples: dict[str, list[Sample]], began: float) -> None:
    """Take a sample of each process."""
    for kind in KINDS:
        pid = service.process.pid if kind == "supervisor" else service.find_pid(kind)
        sample = sample_process(pid, began) if pid else None
        if sample:
            samples[kind].append(sample)


def run_soak(run: Run, minutes: float, samples: dict[str, list[Sample]]) -> None:
    """Run the load, the faults and the samples. There are no kills: a killed process has no memory
    to leak.
    """
    service = run.start()
    run.wait_for_progress()
    began = time.monotonic()
    fault_at = began + FAULT_EVERY_S
    while time.monotonic() < began + 60 * minutes:
        sample_service(service, samples, began)
        time.sleep(SAMPLE_S)  # the interval of the samples
        assert service.process.poll() is None, service.read_log_tail()
        assert not service.crashes
        if time.monotonic() > fault_at:
            fault_at = time.monotonic() + run.rng.expovariate(1 / FAULT_EVERY_S)
            run.rng.choice(
                (cut_connections, cut_connections, freeze_process, make_half_open, lose_request)
            )(run, service)
            print(f"{(time.monotonic() - began) / 60:.0f} min: {dict(run.hits)}", flush=True)


def compute_slopes(samples: dict[str, list[Sample]]) -> dict[str, dict[str, float]]:
    """The last values and the lines through the second half."""
    figures = {}
    for kind, rows in samples.items():
        half = rows[len(rows) // 2 :]
        if len(half) >= FEWEST_SAMPLES:
            hours = [row[0] for row in half]
            columns = {
                name: [row[column] for row in half]
                for column, name in ((1, "rss_mb"), (2, "descriptors"), (3, "threads"))
            }
            figures[kind] = {
                name: mean(values[-FEWEST_SAMPLES:]) for name, values in columns.items()
            } | {
                f"{name}_per_h": linear_regression(hours, values).slope
                for name, values in columns.items()
            }
    return figures


def thin_out_memory(samples: dict[str, list[Sample]]) -> dict[str, list[tuple[float, float]]]:
    """(minutes, resident MB) of each process every five minutes: a permanent step after a backlog
    looks like a slope, but is not one.
    """
    every = int(COURSE_EVERY_S / SAMPLE_S)
    return {
        kind: [(round(60 * row[0], 1), round(row[1], 1)) for row in rows[::every]]
        for kind, rows in samples.items()
    }


def main() -> int:
    """Soak, judge, print, write."""
    arguments = argparse.ArgumentParser(prog="make soak")
    arguments.add_argument("--minutes", type=float, default=60)
    arguments.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    arguments.add_argument("--out", type=Path)
    options = arguments.parse_args()
    samples: dict[str, list[Sample]] = defaultdict(list)
    story = Story(
        "soak",
        lambda run: run_soak(run, options.minutes, samples),
        brokers="proxied",
        records_per_s=RECORDS_PER_S,
    )
    with (
        tempfile.TemporaryDirectory(prefix="reo-soak-") as folder,
        start_clusters(Path(folder) / "brokers", story.brokers) as testbed,
    ):
        result = run_story(story, testbed, options.seed, Path(folder))
    report = {
        "how": f"make soak MINUTES={options.minutes:.0f} SEED={options.seed}",
        "commit": result.commit,
        "minutes": options.minutes,
        "records_per_s": RECORDS_PER_S,
        "fault_every_s": FAULT_EVERY_S,
        "records": result.records,
        "faults": sum(result.hits.values()),
        "hits": result.hits,
        "verdict": result.verdict,
        "cores": os.cpu_count(),
        "processes": compute_slopes(samples),
        "course": thin_out_memory(samples),
    }
    print(json.dumps(report, indent=1))
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if result.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
