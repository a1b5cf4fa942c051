"""The example on the page about a destination of a user's own."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

from deduplicator.own_destination import Setup
from tests.harness.kafka import ROOT


def write_example(folder: Path) -> None:
    """Write the module of the page's example into the folder."""
    (code,) = re.findall(
        r"```python\n(.*?)```",
        (ROOT / "docs" / "how-to" / "own-destination.md").read_text(),
        re.DOTALL,
    )
    (folder / "own_store.py").write_text(code)


def open_store(folder: Path) -> Any:
    """An instance of the example."""
    spec = importlib.util.spec_from_file_location("own_store", folder / "own_store.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    options = {"file": str(folder / "own.db")}
    return module.SqliteStore(Setup("a", options, "", "test", 20, False, lambda _: None))
