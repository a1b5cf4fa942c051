"""One line of `reo check`: ok, a warning or an error, what was found and what to do; and all lines
as text or as JSON. The message of an error is that with which the service would end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich.console import Console
from rich.text import Text

from common.errors import ReoError
from reo.report import print_json

Level = Literal["ok", "warning", "error"]
STYLES: dict[Level, str] = {"ok": "green", "warning": "yellow", "error": "bold red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result for one subject; only errors have `error`, and all but `ok` have `to_do`."""

    level: Level
    about: str
    seen: str
    to_do: str | None = None
    error: ReoError | None = None

    @property
    def exit_code(self) -> int:
        """With which the service would end."""
        return 0 if self.error is None else self.error.exit_code

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "level": self.level,
            "about": self.about,
            "seen": self.seen,
            "to_do": self.to_do,
            "error": None if self.error is None else type(self.error).__name__,
            "exit_code": self.exit_code,
        }


def report_ok(about: str, seen: str) -> Finding:
    """Everything is right."""
    return Finding("ok", about, seen)


def report_warning(about: str, seen: str, to_do: str) -> Finding:
    """It works, and may not be intended."""
    return Finding("warning", about, seen, to_do)


def report_failure(about: str, error: ReoError) -> Finding:
    """The service would end with this error."""
    return Finding("error", about, str(error), error.to_do or None, error)


def print_findings(findings: Sequence[Finding], as_json: bool) -> int:
    """Print a line for each, below it what to do, and then the verdict, with colours only on a
    terminal; or one object. Returns 0, or the code of the first error.
    """
    exit_code = next((finding.exit_code for finding in findings if finding.error), 0)
    levels = [finding.level for finding in findings]
    errors, warnings = levels.count("error"), levels.count("warning")
    if as_json:
        rows = [finding.to_dict() for finding in findings]
        counts = {"exit_code": exit_code, "errors": errors, "warnings": warnings}
        print_json(counts | {"findings": rows})
        return exit_code
    console = Console()
    for finding in findings:
        line = Text.assemble(
            (f"{finding.level:<8}", STYLES[finding.level]), f"{finding.about}: {finding.seen}"
        )
        if finding.level == "warning":  # the message of an error says it itself
            line.append(f"\n{'':<8}→ {finding.to_do}")
        console.print(line, soft_wrap=True, highlight=False)
    verdict = "the service would not run" if errors else "the service can run"
    counted = f"{errors} error{'s' * (errors != 1)}, {warnings} warning{'s' * (warnings != 1)}"
    text = f"{counted}: {verdict}; nothing was changed"
    console.print(text, soft_wrap=True, highlight=False)
    return exit_code
