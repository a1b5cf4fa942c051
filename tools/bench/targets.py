"""What the maintainers want of `make bench`, beside what was measured: the end of its output, for
docs/notebook.md. The users' page has the figures only.

    python -m tools.bench.targets RESULTS.jsonl [MORE.jsonl …]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

from tools.bench.report import SIDE_BY_SIDE, read_rows
from tools.bench.results import OURS, Results

GROWTH = "CPU µs/record, 64 partitions"
GROWTH_RATIO = "the same, 4 → 64 partitions"
OWN_FIGURES = {GROWTH: "growth: 64 partitions", "CPU µs/record, 16 topics": "growth: 16 topics"}
"""Figures of reo alone, by the section that has them."""


class Target(NamedTuple):
    """Ratios to MirrorMaker 2's figure, or of the same figure with 64 partitions and with 4; of
    `OWN_FIGURES`, µs.
    """

    at_least: float
    aim: float
    is_rate: bool = False
    """More is better."""

    def compute_miss(self, ratio: float) -> float:
        """By which part of `at_least` the figure misses it; 0 or less when it does not."""
        miss = ratio / self.at_least - 1
        return -miss if self.is_rate else miss


TARGETS = {
    "records/s, 100 B": Target(1.8, 2.5, is_rate=True),
    "records/s, 1 kB": Target(1.15, 1.5, is_rate=True),
    "records/s, JSON with lz4": Target(1.2, 1.6, is_rate=True),
    "CPU µs/record of its processes, 100 B": Target(0.45, 0.33),
    "CPU µs/record of its processes, 1 kB": Target(0.8, 0.6),
    "CPU µs/record of its processes, JSON with lz4": Target(0.72, 0.55),
    "latency p50 at 450/s, ms": Target(2.5, 1.5),
    "latency p99 at 450/s, ms": Target(0.6, 0.6),
    "latency p50 at 20,000/s, ms": Target(1.3, 1.0),
    "latency p99 at 20,000/s, ms": Target(0.8, 0.8),
    "first record after start, s": Target(0.8, 0.7),
    "RSS of its processes, MB": Target(1.3, 1.1),
    GROWTH: Target(2.5, 2.5),
    "CPU µs/record, 16 topics": Target(2.6, 2.6),
    GROWTH_RATIO: Target(1.32, 1.15),
}


def compute_figures(results: Results) -> dict[str, float]:
    """The figure of each target that was measured."""
    pairs = {row.name: results.medians(row.section, row.figure) for row in SIDE_BY_SIDE}
    figures = {name: pair[0] / pair[1] for name, pair in pairs.items() if pair and name in TARGETS}
    for name, section in OWN_FIGURES.items():
        cpu_us = results.median(section, OURS, "cpu_us_all")
        if cpu_us is not None:
            figures[name] = cpu_us
    few = results.median("growth: 4 partitions", OURS, "cpu_us_all")
    return (
        figures
        if few is None or GROWTH not in figures
        else figures | {GROWTH_RATIO: figures[GROWTH] / few}
    )


def format_targets(results: Results) -> list[str]:
    """The table."""
    figures = compute_figures(results)
    lines = [
        "| ratio, or µs | measured | at least | aim | missed by |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, target in TARGETS.items():
        if name not in figures:
            lines.append(f"| {name} | – | {target.at_least} | {target.aim} | not measured |")
            continue
        miss = target.compute_miss(figures[name])
        missed = f"{100 * miss:.0f} %" if miss > 0 else "–"
        lines.append(
            f"| {name} | {figures[name]:.2f} | {target.at_least} | {target.aim} | {missed} |"
        )
    return lines


def main() -> None:
    """Print the table."""
    rows = read_rows([Path(name) for name in sys.argv[1:]])
    print("\n".join(format_targets(Results(rows))))


if __name__ == "__main__":
    main()
