"""Figures that are measured once and shown in two places: from the page that `make bench` writes to
the page that explains them.
"""

from __future__ import annotations

import re
from pathlib import Path

PERFORMANCE_PAGE = Path(__file__).parents[2] / "docs" / "performance.md"


def comparison_table() -> str:
    """The remarks of docs/performance.md on its figures, if any, and its rows with a figure of
    both: label, reo, MirrorMaker 2, ratio, rounds.
    """
    page = PERFORMANCE_PAGE.read_text()
    rows = re.findall(
        r"^\| ([^|]+) \| ([\d.,]+) \| ([\d.,]+) \| ([\d.]+) \| (\d+) \|$", page, re.MULTILINE
    )
    if not rows:
        raise ValueError("docs/performance.md has no row with a figure of reo and of MirrorMaker 2")
    remarks = [f"{remark}\n" for remark in re.findall(r"^\*\*These figures.*$", page, re.MULTILINE)]
    return "\n".join(
        [
            *remarks,
            "| | reo | MirrorMaker 2 | ratio | rounds |",
            "|---|---:|---:|---:|---:|",
            *(f"| {' | '.join(row)} |" for row in rows),
        ]
    )
