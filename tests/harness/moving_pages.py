"""The pages about moving, and the commands on them."""

from __future__ import annotations

import shlex
from pathlib import Path

from tests.harness.kafka import ROOT

PAGES = {
    name: ROOT / "docs" / "how-to" / f"{name}.md" for name in ("move-cluster", "from-mirrormaker")
}


def commands_of(page: Path) -> list[list[str]]:
    """The words of each command in a block of the page."""
    return [
        shlex.split(line.strip().removeprefix("$ reo "))
        for line in page.read_text().splitlines()
        if line.strip().startswith("$ reo ")
    ]
