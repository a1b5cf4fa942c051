"""The tables of each page, how to write them there, and the files that are generated as a whole
(`reference.chart`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from tools.reference import chart, figures, formats, interfaces, tables

ROOT = Path(__file__).parents[2]
Tables = Mapping[str, Callable[[], str]]
PAGES: Mapping[Path, Tables] = {
    ROOT / "docs" / "reference.md": {
        "commands": interfaces.commands_table,
        "settings": tables.settings_table,
        "guarded options": tables.guarded_options_table,
        "exit codes": tables.exit_codes_table,
        "metrics": interfaces.metrics_table,
        "permissions": tables.permissions_table,
        "envelope": formats.envelope_table,
        "frontier": formats.frontier_table,
    },
    ROOT / "docs" / "how-to" / "secure.md": {"IAM actions": tables.iam_actions_table},
    ROOT / "README.md": {"price": figures.price_table},
}


def find_outdated() -> dict[Path, str]:
    """The pages and files that differ from the code, with their correct text; ValueError when a
    page lacks the markers of a table.
    """
    expected = {page: rewrite_tables(page.read_text(), tables) for page, tables in PAGES.items()}
    expected |= {file: write() for file, write in chart.list_files().items()}
    return {
        path: text
        for path, text in expected.items()
        if not path.exists() or path.read_text() != text
    }


def rewrite_tables(text: str, tables: Tables) -> str:
    """The page with every table generated from the code."""
    for name, table in tables.items():
        section = re.compile(rf"(<!-- {name} -->)(.*?)(<!-- /{name} -->)", re.DOTALL)
        if not section.search(text):
            raise ValueError(f"a page lacks <!-- {name} --> … <!-- /{name} -->")
        content = table()
        escaped = content.replace("\\", r"\\")
        text = section.sub(rf"\g<1>\n{escaped}\n\g<3>", text)
    return text
