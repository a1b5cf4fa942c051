"""kaf-relay's TOML: several files are merged in order, tables key by key, lists as a whole, as
koanf does. Durations are Go's.
"""

from __future__ import annotations

import re

from common.settings.declaration import Setting
from reo.imported_settings import Tree

UNITS_MS = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4, "h": 3.6e6}


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
