"""Known defects, put into the service's own source text when it is imported. The simulator has to
find each of them.

A defect is a piece of a module's text and its replacement. The text is replaced while Python
imports the module, so every importer has the defect; a process with a planted defect cannot be used
for anything else. Which schedules have to be run with it: `defect_probes`.
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

from tools.simulator import defect_probes

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

    def put_into(self, text: str) -> str:
        """The text of the module with the defect. ValueError when the module does not have `text`
        exactly once: the defect is out of date.
        """
        if text.count(self.text) != 1:
            raise ValueError(
                f"{self.name}: {self.module} has {self.text!r} {text.count(self.text)} times, not"
                " once"
            )
        return text.replace(self.text, self.becomes)


def find_file(module: str) -> Path:
    """The file of one of the project's modules."""
    return ROOT / (module.replace(".", "/") + ".py")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one module, and loads it with the changed text, or with probes for the defects."""

    def __init__(self, module: str, defects: Sequence[Defect], with_probes: bool) -> None:
        self.module = module
        self.defects = defects
        self.with_probes = with_probes
        self.path = find_file(module)

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        """Find the module with the defects, and no other."""
        return (
            importlib.util.spec_from_loader(name, self, origin=str(self.path))
            if name == self.module
            else None
        )

    def exec_module(self, module: ModuleType) -> None:
        """Execute the text of the module, changed or with probes."""
        text = self.path.read_text()
        if self.with_probes:
            texts = {defect.name: defect.put_into(text) for defect in self.defects}
            defect_probes.execute(text, texts, str(self.path), module.__dict__)
            return
        for defect in self.defects:
            text = defect.put_into(text)
        exec(compile(text, str(self.path), "exec"), module.__dict__)  # noqa: S102  # our own text


def plant(names: Collection[str], with_probes: bool = False) -> None:
    """Install these defects, or only their probes. Call this before any module of the service is
    imported.
    """
    by_module: dict[str, list[Defect]] = {}
    for defect in DEFECTS:
        if defect.name in names:
            by_module.setdefault(defect.module, []).append(defect)
    for module, defects in by_module.items():
        if module in sys.modules:
            raise RuntimeError(f"{module} is already imported: plant the defects first")
        sys.meta_path.insert(0, _Finder(module, defects, with_probes))


def search_planted(
    names: Sequence[str],
    seeds: Sequence[int],
    run_campaign: Callable[..., Any],
    commit: str,
    output_file: Path | None,
) -> int:
    """Run the seeds without defects, to know in which of them each of these makes a
    difference (`defect_probes`). Then plant each by itself and run those seeds until one finds a
    violation, and print it. Returns the exit code.
    """
    defects = [defect.name for defect in DEFECTS if defect.name in names or "all" in names]
    clean = run_campaign(seeds, defects, with_probes=True)
    if clean.violations:
        raise RuntimeError(f"seed {clean.violations[0][0]} has a violation without any defect")
    not_found = 0
    for name in defects:
        reached = sorted(clean.reached.get(name, ()))
        result = run_campaign(reached, [name], first_only=True)
        seed, violation, _ = min(
            result.violations,
            default=(0, f"NOT FOUND in the {len(reached):,} that it makes a difference in", []),
        )
        shown = violation.splitlines()[0][:VIOLATION_CHARS_MAX]
        print(f"{seed or '-':>7}  {name}: {shown}", flush=True)
        not_found += not seed
        if output_file:
            row = {
                "name": name,
                "seed": seed,
                "runs": len(seeds),
                "reached": len(reached),
                "violation": violation,
                "commit": commit,
            }
            with output_file.open("a") as out:
                out.write(json.dumps(row) + "\n")
    return 1 if not_found else 0


def _read_defects() -> tuple[Defect, ...]:
    with DEFECTS_FILE.open("rb") as file:
        return tuple(Defect(**fields) for fields in tomllib.load(file)["defect"])


DEFECTS = _read_defects()
CHOICES = (*(defect.name for defect in DEFECTS), "all")
"""What `--planted` may be."""
