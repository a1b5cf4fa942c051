"""What `reo check --json` has found."""

from __future__ import annotations

from typing import Any


def list_findings(said: dict[str, Any], level: str, about: str = "") -> list[str]:
    """What was seen at this level, of things whose name begins so."""
    return [
        finding["seen"]
        for finding in said["findings"]
        if finding["level"] == level and finding["about"].startswith(about)
    ]
