"""Known defects, put into the service's own source text when it is imported. The simulator has to
find each of them.

A defect is a piece of a module's text and its replacement. The text is replaced while Python
imports the module, so every importer has the defect; a process with a planted defect cannot be used
for anything else.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parent.parent
DEFECTS_FILE = Path(__file__).with_suffix(".toml")
VIOLATION_CHARS_MAX = 140


@dataclass(frozen=True, slots=True)
class Defect:
    """A known defect: `text` in `module` becomes `becomes`."""

    name: str
    module: str
    text: str
    becomes: str
    limit: str = ""
    """Why the simulator finds it hardly or never."""


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one module, and loads it with the changed text."""

    def __init__(self, defect: Defect) -> None:
        self.defect = defect
        self.path = ROOT / (defect.module.replace(".", "/") + ".py")

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        """Find the module with the defect, and no other."""
        return (
            importlib.util.spec_from_loader(name, self, origin=str(self.path))
            if name == self.defect.module
            else None
        )

    def exec_module(self, module: ModuleType) -> None:
        """Execute the changed text of the module."""
        # our own text
        exec(compile(self.text(), str(self.path), "exec"), module.__dict__)  # noqa: S102

    def text(self) -> str:
        """The changed text. ValueError when the module does not have the text exactly once: the
        defect is out of date.
        """
        text = self.path.read_text()
        if text.count(self.defect.text) != 1:
            raise ValueError(
                f"{self.defect.name}: {self.defect.module} has {self.defect.text!r}"
                f" {text.count(self.defect.text)} times, not once"
            )
        return text.replace(self.defect.text, self.defect.becomes)


def plant(name: str) -> None:
    """Install a defect. Call this before any module of the service is imported."""
    defect = next(defect for defect in DEFECTS if defect.name == name)
    if defect.module in sys.modules:
        raise RuntimeError(f"{defect.module} is already imported: plant the defect first")
    sys.meta_path.insert(0, _Finder(defect))


def search_planted(
    name: str,
    runs: int,
    processes: int,
    run_campaign: Callable[..., Any],
    commit: str,
    output_file: Path | None,
) -> int:
    """Run the seeds from 1 on for one defect, or for each of them, and print which seed finds it.
    Returns the exit code.
    """
    survived = 0
    for defect in DEFECTS:
        if name in (defect.name, "all"):
            campaign_result = run_campaign(1, runs, processes, defect.name, True)
            survived += not campaign_result.violations
            seed, violation, _ = min(
                campaign_result.violations,
                default=(0, f"NOT FOUND in {campaign_result.runs:,}", []),
            )
            if output_file:
                with output_file.open("a") as out:
                    out.write(
                        json.dumps(
                            {
                                "name": defect.name,
                                "seed": seed,
                                "runs": campaign_result.runs,
                                "violation": violation,
                                "commit": commit,
                            }
                        )
                        + "\n"
                    )
            print(
                f"{seed or '-':>7}  {defect.name}:"
                f" {violation.splitlines()[0][:VIOLATION_CHARS_MAX]}",
                flush=True,
            )
    return 1 if survived else 0


def _read_defects() -> tuple[Defect, ...]:
    with DEFECTS_FILE.open("rb") as file:
        return tuple(Defect(**fields) for fields in tomllib.load(file)["defect"])


DEFECTS = _read_defects()
