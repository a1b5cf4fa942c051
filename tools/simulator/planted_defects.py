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
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]
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
    test: str = ""
    """The file of the tests that fail with it, for one that the simulator did not find."""


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one module, and loads it with the changed text."""

    def __init__(self, module: str, defects: Sequence[Defect]) -> None:
        self.module = module
        self.defects = defects
        self.path = ROOT / (module.replace(".", "/") + ".py")

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        """Find the module with the defects, and no other."""
        return (
            importlib.util.spec_from_loader(name, self, origin=str(self.path))
            if name == self.module
            else None
        )

    def exec_module(self, module: ModuleType) -> None:
        """Execute the changed text of the module."""
        # our own text
        exec(compile(self.text(), str(self.path), "exec"), module.__dict__)  # noqa: S102

    def text(self) -> str:
        """The changed text. ValueError when the module does not have the text of a defect exactly
        once: the defect is out of date.
        """
        text = self.path.read_text()
        for defect in self.defects:
            if text.count(defect.text) != 1:
                raise ValueError(
                    f"{defect.name}: {defect.module} has {defect.text!r}"
                    f" {text.count(defect.text)} times, not once"
                )
            text = text.replace(defect.text, defect.becomes)
        return text


def plant(names: Collection[str]) -> None:
    """Install these defects. Call this before any module of the service is imported."""
    by_module: dict[str, list[Defect]] = {}
    for defect in DEFECTS:
        if defect.name in names:
            by_module.setdefault(defect.module, []).append(defect)
    for module, defects in by_module.items():
        if module in sys.modules:
            raise RuntimeError(f"{module} is already imported: plant the defects first")
        sys.meta_path.insert(0, _Finder(module, defects))


def search_planted(
    names: Sequence[str],
    runs: int,
    processes: int,
    run_campaign: Callable[..., Any],
    commit: str,
    output_file: Path | None,
) -> int:
    """Plant these defects together, or each of `all` by itself; run the seeds from 1 on until one
    finds a violation, and print it. Returns the exit code.

    Without a violation, none of those planted together is found; a violation does not say which of
    them it shows, and then there is no result.
    """
    not_found = 0
    for planted in [[defect.name] for defect in DEFECTS] if "all" in names else [names]:
        campaign_result = run_campaign(1, runs, processes, planted, True)
        seed, violation, _ = min(
            campaign_result.violations, default=(0, f"NOT FOUND in {campaign_result.runs:,}", [])
        )
        shown = violation.splitlines()[0][:VIOLATION_CHARS_MAX]
        print(f"{seed or '-':>7}  {' + '.join(planted)}: {shown}", flush=True)
        not_found += not seed
        if output_file and not (seed and len(planted) > 1):
            with output_file.open("a") as out:
                for name in planted:
                    row = {
                        "name": name,
                        "planted_together": len(planted),
                        "seed": seed,
                        "runs": campaign_result.runs,
                        "violation": violation,
                        "commit": commit,
                    }
                    out.write(json.dumps(row) + "\n")
    return 1 if not_found else 0


def _read_defects() -> tuple[Defect, ...]:
    with DEFECTS_FILE.open("rb") as file:
        return tuple(Defect(**fields) for fields in tomllib.load(file)["defect"])


DEFECTS = _read_defects()
CHOICES = (*(defect.name for defect in DEFECTS), "all")
"""What `--planted` may be."""
