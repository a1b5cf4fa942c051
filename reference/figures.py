"""Figures that are measured once and shown in two places: from the page that `make bench` writes to the page that explains them."""

from __future__ import annotations

import re
from pathlib import Path

MEASURED = Path(__file__).parent.parent / "docs" / "performance.md"


def beside_the_rival() -> str:
    """The rows of docs/performance.md that have a figure of both: what, ours, theirs, the ratio of ours to theirs, and in how many rounds."""
    rows = re.findall(r"^\| ([^|]+) \| ([\d.,]+) \| ([\d.,]+) \| ([\d.]+) \| [^|]* \| (\d+) \|", MEASURED.read_text(), re.MULTILINE)
    if not rows:
        raise ValueError("docs/performance.md has no row with a figure of reo and of MirrorMaker 2")
    return "\n".join(["| | reo | MirrorMaker 2 | ratio | rounds |", "|---|---:|---:|---:|---:|", *(f"| {' | '.join(row)} |" for row in rows)])
