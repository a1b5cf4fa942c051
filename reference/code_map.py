"""The map of the code: every module by its file name, with the first line of what it says of itself.

Packages are in the order of the data path; inside one the order is that of a record's way where there is one, the alphabet's otherwise.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("replicator", "deduplicator", "common", "reo", "tests", "proof", "faults", "fuzz", "bench", "simulator", "reference")
WAY = {
    "replicator": ("stage", "plan", "run", "source", "condition", "wrap", "intermediate", "watch"),
    "deduplicator": ("worker", "start", "destination_check", "loop", "intermediate", "rule", "record_filter", "partitioner", "unwrap",
                     "destination", "transaction"),
}
"""The modules that a record meets, in order; the others come behind them."""


def table() -> str:
    """One section for each package."""
    return "\n\n".join(_section(package) for package in PACKAGES)


def first_line(path: Path) -> str:
    """Of the module's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n", 1)[0]


def _section(package: str) -> str:
    folder = ROOT / package
    way = [*WAY.get(package, ())]
    modules = sorted((path for path in folder.rglob("*.py") if path != folder / "__init__.py"),
                     key=lambda path: (way.index(path.stem) if path.parent == folder and path.stem in way else len(way), path.parent != folder, path))
    rows = (f"| [`{path.relative_to(ROOT)}`](../{path.relative_to(ROOT)}) | {_cell(path)} |" for path in modules)
    return "\n".join([f"## {package}/", "", first_line(folder / "__init__.py"), "", "| file | what it is |", "|---|---|", *rows])


def _cell(path: Path) -> str:
    return first_line(path).replace("|", "\\|")
