"""What the commands print alike: a table for people, a refusal for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from common.errors import ReoError


def aligned(rows: Iterable[Sequence[str]], numbers_from: int | None = None) -> list[str]:
    """Rows of as many cells each, as lines with the columns below one another; from column `numbers_from` on they are put to the right."""
    table = list(rows)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    sides = [str.ljust if numbers_from is None or column < numbers_from else str.rjust for column in range(len(widths))]
    return ["  ".join(side(cell, width) for side, cell, width in zip(sides, row, widths, strict=True)).rstrip() for row in table]


def facts(refused: ReoError | None) -> dict[str, Any] | None:
    """For JSON: which error it is, the exit code that it ends a command with, and its text."""
    return None if refused is None else {"error": type(refused).__name__, "exit_code": refused.exit_code, "message": str(refused)}
