"""One line of `reo check`: ok, a warning or an error, what was seen and what to do; and all of them as text or as JSON.

An error is what would end the service with an exit code of its own: the typed error itself is asked for its message, so check and
service say the same words. A warning is what works, and may not be what is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson
from rich.console import Console
from rich.text import Text

from common.errors import ReoError

Level = Literal["ok", "warning", "error"]
STYLES: dict[Level, str] = {"ok": "green", "warning": "yellow", "error": "bold red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """What was seen of one thing; `exit_code` and `error` belong to errors."""

    level: Level
    about: str
    seen: str
    to_do: str = ""
    exit_code: int = 0
    error: str = ""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"level": self.level, "about": self.about, "seen": self.seen, "to_do": self.to_do or None, "error": self.error or None,
                "exit_code": self.exit_code}


def ok(about: str, seen: str) -> Finding:
    """As it should be."""
    return Finding("ok", about, seen)


def warning(about: str, seen: str, to_do: str) -> Finding:
    """It works, and may not be what is wanted."""
    return Finding("warning", about, seen, to_do)


def failed(about: str, error: ReoError) -> Finding:
    """What the service would end with; the message says what to do."""
    return Finding("error", about, str(error), "", error.exit_code, type(error).__name__)


def exit_code(findings: Sequence[Finding]) -> int:
    """0, or the code of the first error."""
    return next((finding.exit_code for finding in findings if finding.level == "error"), 0)


def counted(findings: Sequence[Finding], level: Level) -> int:
    """How many there are of a level."""
    return sum(finding.level == level for finding in findings)


def as_json(findings: Sequence[Finding]) -> str:
    """One object."""
    return orjson.dumps({"exit_code": exit_code(findings), "errors": counted(findings, "error"), "warnings": counted(findings, "warning"),
                         "findings": [finding.to_dict() for finding in findings]}).decode()


def say(findings: Sequence[Finding], console: Console) -> None:
    """A line each, what to do below it, and the verdict; coloured on a terminal only."""
    for finding in findings:
        line = Text.assemble((f"{finding.level:<8}", STYLES[finding.level]), f"{finding.about}: {finding.seen}")
        if finding.to_do:
            line.append(f"\n{'':<8}→ {finding.to_do}")
        console.print(line, soft_wrap=True, highlight=False)
    errors, warnings = counted(findings, "error"), counted(findings, "warning")
    verdict = "it would not run" if errors else "it can run"
    console.print(f"{errors} errors, {warnings} warnings: {verdict}; nothing was changed", soft_wrap=True, highlight=False)
