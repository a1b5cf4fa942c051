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
    "latency p50 at 450/s, ms": "latency p50 at 450/s, ms",
    "latency p99 at 20,000/s, ms": "latency p99 at 20,000/s, ms",
    "RSS of its processes, MB": "memory, MB",
}
"""The figures of README's row by their names on the page, and what they are called in README."""


def price_table() -> str:
    """The remarks of docs/performance.md on its figures, if any, and one row: reo's figure and
    MirrorMaker 2's of each that was measured.
    """
    page = PERFORMANCE_PAGE.read_text()
    measured = {
        PRICE[name]: f"{ours} : {theirs}"
        for name, ours, theirs in re.findall(
            r"^\| ([^|]+) \| ([\d.,]+) \| ([\d.,]+) \| [\d.]+ \| \d+ \|$", page, re.MULTILINE
        )
        if name in PRICE
    }
    if not measured:
        raise ValueError("docs/performance.md has no row with a figure of reo and of MirrorMaker 2")
    remarks = [f"{remark}\n" for remark in re.findall(r"^\*\*These figures.*$", page, re.MULTILINE)]
    rows = (
        ["", *measured],
        ["---", *("---:" for _ in measured)],
        ["reo : MirrorMaker 2", *measured.values()],
    )
    return "\n".join([*remarks, *(f"| {' | '.join(row)} |" for row in rows)])
