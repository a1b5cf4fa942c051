"""What the maintainers want of `make bench`, beside what was measured: the end of its output, for
docs/notebook.md. The users' page has the figures only.

    python -m bench.targets RESULTS.jsonl [MORE.jsonl …]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

from bench.report import SIDE_BY_SIDE, read_rows
from bench.results import OURS, Results

GROWTH = "CPU µs/record, 4 → 64 partitions"


class Target(NamedTuple):
    """Ratios to MirrorMaker 2's figure, or of the same figure with 64 partitions and with 4."""

    at_least: float
    aim: float
    is_rate: bool = False
    """More is better."""

    def compute_miss(self, ratio: float) -> float:
        """By which part of `at_least` the ratio misses it; 0 or less when it does not."""
        miss = ratio / self.at_least - 1
        return -miss if self.is_rate else miss


TARGETS = {
    "records/s, 100 B": Target(1.0, 1.15, is_rate=True),
    "records/s, 1 kB": Target(1.15, 1.3, is_rate=True),
    "records/s, JSON with lz4": Target(1.0, 1.15, is_rate=True),
    "CPU µs/record of its processes, 100 B": Target(1.0, 0.85),
    "latency p50 at 450/s, ms": Target(1.0, 0.7),
    "latency p99 at 450/s, ms": Target(0.8, 0.5),
    "latency p50 at 20,000/s, ms": Target(1.3, 1.0),
    "latency p99 at 20,000/s, ms": Target(1.3, 1.0),
    "first record after start, s": Target(0.8, 0.7),
    "RSS of its processes, MB": Target(1.3, 1.0),
    GROWTH: Target(1.2, 1.1),
}


def compute_ratios(results: Results) -> dict[str, float]:
    """The ratio of each target that was measured."""
    pairs = {row.name: results.medians(row.section, row.figure) for row in SIDE_BY_SIDE}
    ratios = {name: pair[0] / pair[1] for name, pair in pairs.items() if pair and name in TARGETS}
    many, few = (
        results.median(f"growth: {partitions} partitions", OURS, "cpu_us_all")
        for partitions in (64, 4)
    )
    return ratios if many is None or few is None else ratios | {GROWTH: many / few}


def format_targets(results: Results) -> list[str]:
    """The table."""
    ratios = compute_ratios(results)
    lines = ["| ratio | measured | at least | aim | missed by |", "|---|---:|---:|---:|---:|"]
    for name, target in TARGETS.items():
        if name not in ratios:
            lines.append(f"| {name} | – | {target.at_least} | {target.aim} | not measured |")
            continue
        miss = target.compute_miss(ratios[name])
        missed = f"{100 * miss:.0f} %" if miss > 0 else "–"
        lines.append(
            f"| {name} | {ratios[name]:.2f} | {target.at_least} | {target.aim} | {missed} |"
        )
    return lines


def main() -> None:
    """Print the table."""
    rows = read_rows([Path(name) for name in sys.argv[1:]])
    print("\n".join(format_targets(Results(rows))))


if __name__ == "__main__":
    main()
