"""The two formats that several commands share: columns of text, and errors as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from common.errors import ReoError


def align_columns(rows: Iterable[Sequence[str]], numbers_from: int | None = None) -> list[str]:
    """The rows as lines with aligned columns. All rows have equally many cells; columns from
    `numbers_from` on are aligned to the right.
    """
    table = list(rows)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    justify = [
        str.ljust if numbers_from is None or column < numbers_from else str.rjust
        for column in range(len(widths))
    ]
    return [
        "  ".join(
            align(cell, width) for align, cell, width in zip(justify, row, widths, strict=True)
        ).rstrip()
        for row in table
    ]


def convert_error_to_dict(error: ReoError | None) -> dict[str, Any] | None:
    """For JSON: the class of the error, the exit code with which it ends a command, and its
    message.
    """
    return (
        None
        if error is None
        else {"error": type(error).__name__, "exit_code": error.exit_code, "message": str(error)}
    )
