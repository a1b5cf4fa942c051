"""Known wrongs, put into the service's own text when it is imported: what the simulator has to find, or it shows nothing.

A wrong is a piece of a module's text and what it becomes. The text is replaced while Python imports the module, so everything that
imports it has the wrong; a process with one is good for nothing else.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Wrong:
    """One-line wrong."""

    name: str
    module: str
    text: str
    becomes: str


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one module, and loads it with another text."""

    def __init__(self, wrong: Wrong) -> None:
        self.wrong = wrong
        self.path = ROOT / (wrong.module.replace(".", "/") + ".py")

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        """Of the module in question only."""
        return importlib.util.spec_from_loader(name, self, origin=str(self.path)) if name == self.wrong.module else None

    def exec_module(self, module: ModuleType) -> None:
        """Its text, with the wrong in it."""
        exec(compile(self.text(), str(self.path), "exec"), module.__dict__)  # noqa: S102  (our own text)

    def text(self) -> str:
        """ValueError when the text is not there once: the wrong is out of date."""
        text = self.path.read_text()
        if text.count(self.wrong.text) != 1:
            raise ValueError(f"{self.wrong.name}: {self.wrong.module} has {self.wrong.text!r} {text.count(self.wrong.text)} times, not once")
        return text.replace(self.wrong.text, self.wrong.becomes)


def plant(name: str) -> None:
    """Before anything of the service is imported."""
    wrong = next(wrong for wrong in WRONGS if wrong.name == name)
    if wrong.module in sys.modules:
        raise RuntimeError(f"{wrong.module} is imported already")
    sys.meta_path.insert(0, _Finder(wrong))


def hunt(name: str, runs: int, processes: int, campaign: Callable[..., Any]) -> int:
    """Look for one of them, or all; returns the exit code."""
    survived = 0
    for wrong in WRONGS:
        if name in (wrong.name, "all"):
            found = campaign(1, runs, processes, wrong.name, True)
            survived += not found.violations
            seed, violation, _ = min(found.violations, default=(0, "NOT FOUND", []))
            print(f"{found.runs:>7,}  {wrong.name}: {violation.splitlines()[0][:150]} (seed {seed})", flush=True)
    return 1 if survived else 0


WRONGS: tuple[Wrong, ...] = ()
