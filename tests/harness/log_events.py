"""The events that the service's processes say with `log.format=json`."""

from __future__ import annotations

ALWAYS = {"time", "level", "stage", "event"}
"""The fields that each of them has."""
