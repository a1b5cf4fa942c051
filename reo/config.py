"""`reo config show`: every setting in effect, and where its value comes from.

Secrets are never shown, nor is how long they are: only that there is one, and what gave it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

from common import client_options
from common.settings import Settings
from common.settings_table import SETTINGS

SECRET = "(secret)"  # noqa: S105  (what is shown instead of one)


class Shown(NamedTuple):
    """One setting: its dotted name, its value as shown, and what gave it."""

    name: str
    value: Any
    given_by: str


def rows(settings: Settings) -> Iterator[Shown]:
    """All settings in the order of README's table; each raw option is one."""
    follows = {"application": settings.application, "client_id": settings.client_id, "instance": settings.instance,
               "destination.topic": settings.destination_topic, "intermediate.topic": settings.intermediate_topic}
    for setting in SETTINGS:
        if setting.kind == "options":
            for option, text in sorted(settings.options(setting.name).items()):
                name = f"{setting.name}.{option}"
                yield Shown(name, client_options.shown(option, text), settings.given_by[name])
            continue
        value: Any = settings.values[setting.name]
        if setting.kind == "secret" and value:
            value = SECRET
        default = "default" if value != "" or setting.name not in follows else "default, follows from others"
        yield Shown(setting.name, follows.get(setting.name, value) if value == "" else value, settings.given_by.get(setting.name, default))


def show(settings: Settings, as_json: bool) -> int:
    """The sub-command; wrong settings have been refused before."""
    found = list(rows(settings))
    if as_json:
        print(orjson.dumps({row.name: {"value": row.value, "given_by": row.given_by} for row in found}).decode())
        return 0
    widths = [max(len(str(row[column])) for row in found) for column in range(2)]
    for row in found:
        value = str(row.value).lower() if isinstance(row.value, bool) else str(row.value)
        print(f"{row.name.ljust(widths[0])}  {value.ljust(widths[1])}  {row.given_by}".rstrip())
    return 0
