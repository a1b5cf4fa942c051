"""kaf-relay's TOML: its tables, merged as it merges several files, and its durations.

A table gives its keys away one by one, and notes those that are left at the end: so no key is
dropped silently. Several files are merged in order: tables key by key, lists as a whole, as koanf
does. Durations are Go's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from common.settings.declaration import Setting

UNITS_MS = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4, "h": 3.6e6}
Tree = dict[str, Any]


def parse_duration_ms(duration: object) -> int:
    """Parse a duration in Go's format, like 1m30s; ValueError for anything else."""
    parts = re.findall(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)", str(duration))
    if not parts or "".join(number + unit for number, unit in parts) != str(duration):
        raise ValueError(f"a duration like 100ms is expected, not {duration!r}")
    return round(sum(float(number) * UNITS_MS[unit] for number, unit in parts))


def check_duration(setting: Setting, duration: object) -> int:
    """In ms; ValueError for what the setting would not take."""
    duration_ms = parse_duration_ms(duration)
    if not setting.minimum <= duration_ms <= setting.maximum:
        raise ValueError(f"from {setting.minimum} to {setting.maximum} ms is expected")
    return duration_ms


def merge_tables(trees: list[Tree]) -> Tree:
    """Later files win, key by key."""
    merged: Tree = {}
    for tree in trees:
        for key, value in tree.items():
            merged[key] = (
                merge_tables([merged[key], value])
                if isinstance(value, dict) and isinstance(merged.get(key), dict)
                else value
            )
    return merged


@dataclass
class ImportedSettings:
    """The result: dotted settings with their values, topic rules, and a note for each key that is
    dropped or changed.
    """

    values: dict[str, Any] = field(default_factory=dict)
    topics: dict[str, str] = field(default_factory=dict)
    notes: list[tuple[str, str]] = field(default_factory=list)

    def note(self, key: str, why: str) -> None:
        """Note why a key is dropped or changed."""
        self.notes.append((" ".join(key.split()), " ".join(why.split())))


class Table:
    """One table of the file: its keys are removed by name, and `end` notes the remaining ones."""

    def __init__(self, into: ImportedSettings, path: str, content: object) -> None:
        self.into, self.path = into, path
        if content is not None and not isinstance(content, Mapping):
            into.note(path, "a table is expected; it is not imported")
        self.left: Tree = dict(content) if isinstance(content, Mapping) else {}

    def take(self, key: str) -> Any:
        """Remove a key and return its value; None when it is missing or empty."""
        value = self.left.pop(key, None)
        return None if value in ("", []) else value

    def note(self, key: str, why: str) -> None:
        """Add a note about one of its keys."""
        self.into.note(f"{self.path}.{key}" if self.path else key, why)

    def drop(self, keys: str, why: str) -> None:
        """Remove keys that have no setting, all for one reason."""
        for key in keys.split():
            if self.take(key) is not None:
                self.note(key, why)

    def put(self, key: str, setting: str, convert: Any = lambda value: value) -> None:
        """Make a key a setting; a value that cannot be converted is noted."""
        value = self.take(key)
        if value is not None:
            try:
                self.into.values[setting] = convert(value)
            except (ValueError, KeyError, TypeError):
                self.note(key, f"{value!r} has no counterpart in {setting}")

    def end(self) -> None:
        """Note the remaining keys."""
        for key in self.left:
            self.note(key, "unknown key of kaf-relay; it is not imported")
