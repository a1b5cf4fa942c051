"""Figures that are measured once and shown in two places: from the page that `make bench` writes to
README.
"""

from __future__ import annotations

import re
from pathlib import Path

PERFORMANCE_PAGE = Path(__file__).parents[2] / "docs" / "performance.md"
PRICE = {
    "records/s, 100 B": "records/s, 100 B",
    "records/s, 1 kB": "records/s, 1 kB",
    "CPU µs/record of its processes, 100 B": "CPU µs/record, 100 B",
    "CPU µs/record of its processes, 1 kB": "CPU µs/record, 1 kB",
    "throughput, 1 kB": "brokers' CPU µs/record, 1 kB",
    "latency p50 at 450/s, ms": "latency p50 at 450/s, ms",
    "latency p99 at 20,000/s, ms": "latency p99 at 20,000/s, ms",
    "RSS of its processes, MB": "memory, MB",
}
"""The figures of README's table by their names on the page, and what they are called in README."""
COMPARED = re.compile(r"^\| ([^|]+) \| ([\d.,]+) \| ([\d.,]+) \| [\d.]+ \| \d+ \|$", re.MULTILINE)
BROKERS = re.compile(
    r"^\| ([^|]+) \| both brokers, while reo copies \| ([\d.]+) .*\n(?:.*\n)*?"
    r"\| \1 \| both brokers, while MirrorMaker 2 copies \| ([\d.]+) ",
    re.MULTILINE,
)


def price_table() -> str:
    """The remarks of docs/performance.md on its figures, if any, and a row for reo and one for
    MirrorMaker 2, with each figure that was measured of both.
    """
    page = PERFORMANCE_PAGE.read_text()
    both = {
        name: (ours, theirs)
        for pattern in (COMPARED, BROKERS)
        for name, ours, theirs in pattern.findall(page)
    }
    measured = {shown: both[name] for name, shown in PRICE.items() if name in both}
    if not measured:
        raise ValueError("docs/performance.md has no row with a figure of reo and of MirrorMaker 2")
    remarks = [f"{remark}\n" for remark in re.findall(r"^\*\*These figures.*$", page, re.MULTILINE)]
    ours, theirs = zip(*measured.values(), strict=True)
    rows = (
        ["", *measured],
        ["---", *("---:" for _ in measured)],
        ["reo", *ours],
        ["MirrorMaker 2", *theirs],
    )
    return "\n".join([*remarks, *(f"| {' | '.join(row)} |" for row in rows)])
