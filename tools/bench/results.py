"""The results of `make bench`: rows by section and contender."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import Any

OURS, THEIRS = "reo", "MirrorMaker 2"
Row = dict[str, Any]


class Results:
    """The rows by section and contender; those of the machine, and of measurements that failed, are
    kept apart.
    """

    def __init__(self, rows: list[Row]) -> None:
        self.machines = [row for row in rows if row["section"] == "machine"]
        rows = [row for row in rows if row["section"] != "machine"]
        self.rows = [row for row in rows if "failed" not in row]
        self.failed = [row for row in rows if "failed" in row]
        self.by_section: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for row in self.rows:
            self.by_section[row["section"], row.get("who", "")].append(row)

    def median(self, section: str, who: str, figure: str) -> float | None:
        """The median, or None when it was not measured."""
        values = [row[figure] for row in self.by_section[section, who]]
        return median(values) if values else None

    def medians(self, section: str, figure: str) -> list[float] | None:
        """Reo's and MirrorMaker 2's, unless one was not measured."""
        pair = [self.median(section, who, figure) for who in (OURS, THEIRS)]
        return None if None in pair else [figure for figure in pair if figure is not None]

    def sections(self, prefix: str) -> list[str]:
        """Names of sections in the order of the file."""
        return list(
            dict.fromkeys(row["section"] for row in self.rows if row["section"].startswith(prefix))
        )
