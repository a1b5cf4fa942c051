"""What the results of all commands have in common: tables for people, JSON for programs, errors on
standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from common.errors import ReoError
from common.routes import name_some


def format_table(
    titles: str, rows: Iterable[Iterable[object]], numbers_from: int | None = None
) -> str:
    """Lines with aligned columns. `|` separates the titles; without any there is no line of titles.
    None is printed as `-`. Columns from `numbers_from` on are aligned to the right.
    """
    table: list[list[str]] = [titles.split("|")] if titles else []
    table += [["-" if cell is None else str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    justify = [
        str.ljust if numbers_from is None or column < numbers_from else str.rjust
        for column in range(len(widths))
    ]
    return "\n".join(
        "  ".join(
            align(cell, width) for align, cell, width in zip(justify, row, widths, strict=True)
        ).rstrip()
        for row in table
    )


def join_names(names: Iterable[Any]) -> str:
    """The first ones in order, as text."""
    return name_some(sorted(names))


def print_json(content: object) -> None:
    """One line."""
    print(orjson.dumps(content).decode(), flush=True)


def print_errors(command: str, errors: Sequence[ReoError]) -> int:
    """Returns the exit code of the first one, 0 when there is none."""
    for error in errors:
        print(f"reo {command}: {error}", file=sys.stderr)
    return errors[0].exit_code if errors else 0


def convert_error_to_dict(error: ReoError | None) -> dict[str, Any] | None:
    """For JSON: the class of the error, the exit code with which it ends a command, and its
    message.
    """
    if error is None:
        return None
    return {"error": type(error).__name__, "exit_code": error.exit_code, "message": str(error)}
