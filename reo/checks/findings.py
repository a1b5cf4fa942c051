"""One line of `reo check`: ok, a warning or an error, what was found and what to do; and all lines
as text or as JSON.

An error is what would end the service with an exit code of its own. Its message is that of the
typed error, so the check and the service use the same words. A warning is about something that
works and may not be intended.
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


def get_exit_code(findings: Sequence[Finding]) -> int:
    """0, or the code of the first error."""
    return next((finding.exit_code for finding in findings if finding.level == "error"), 0)


def count_level(findings: Sequence[Finding], level: Level) -> int:
    """The number of findings of a level."""
    return sum(finding.level == level for finding in findings)


def print_findings_as_json(findings: Sequence[Finding]) -> None:
    """One object."""
    print_json(
        {
            "exit_code": get_exit_code(findings),
            "errors": count_level(findings, "error"),
            "warnings": count_level(findings, "warning"),
            "findings": [finding.to_dict() for finding in findings],
        }
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def print_findings(findings: Sequence[Finding], console: Console) -> None:
    """Print a line for each, below it what to do, and then the verdict; with colours only on a
    terminal.
    """
    for finding in findings:
        line = Text.assemble(
            (f"{finding.level:<8}", STYLES[finding.level]), f"{finding.about}: {finding.seen}"
        )
        if finding.level == "warning":  # the message of an error says it itself
            line.append(f"\n{'':<8}→ {finding.to_do}")
        console.print(line, soft_wrap=True, highlight=False)
    errors, warnings = count_level(findings, "error"), count_level(findings, "warning")
    verdict = "the service would not run" if errors else "the service can run"
    console.print(
        f"{_count(errors, 'error')}, {_count(warnings, 'warning')}: {verdict}; nothing was changed",
        soft_wrap=True,
        highlight=False,
    )
