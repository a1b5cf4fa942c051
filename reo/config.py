"""`reo config init`: a settings file to begin with. `reo config show`: every setting in effect, and
where its value comes from.

Secrets and their lengths are never printed: only that a secret is set, and where it comes from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import wrap
from typing import Any, NamedTuple

import orjson

from common.settings import Settings, client_options
from common.settings.declaration import Setting
from common.settings.schema import SETTINGS
from reo.report import format_table, print_json
from reo.version import VERSION

EXAMPLES = {
    "source.bootstrap_servers": "source:9092",
    "source.topic": "orders",
    "destination.bootstrap_servers": "destination:9092",
}
"""What the file of `reo config init` sets; everything else is a comment."""


class SettingRow(NamedTuple):
    """One setting: its dotted name, its value as printed, and where the value comes from."""

    name: str
    value: Any
    given_by: str


def list_settings(settings: Settings) -> Iterator[SettingRow]:
    """All settings in the order of the reference; each raw option has its own row."""
    derived = {
        "application": settings.application,
        "client_id": settings.client_id,
        "instance": settings.instance,
    }
    if settings.source_topic:
        derived |= {
            "destination.topic": settings.destination_topic,
            "intermediate.topic": settings.intermediate_topic,
        }
    for setting in SETTINGS:
        value: Any = settings.values[setting.name]
        if setting.candidate and not value:
            continue  # as for all candidates
        if setting.kind == "options":
            for option, text in sorted(settings.get_options(setting.name).items()):
                name = f"{setting.name}.{option}"
                shown = client_options.redact(option, text)
                yield SettingRow(name, shown, str(settings.given_by[name]))
            continue
        default = "default"
        if value is None or value == "":
            value = derived.get(setting.name, "")
            default += ", follows from others" if setting.name in derived else ""
        elif setting.kind == "secret":
            value = client_options.SHOWN
        elif setting.kind == "object":
            value = orjson.dumps(client_options.redact("", orjson.loads(value))).decode()
        origin = settings.given_by.get(setting.name, default)
        yield SettingRow(setting.name, value, str(origin))


def show_settings(settings: Settings, as_json: bool) -> int:
    """The command; invalid settings have been refused before."""
    rows = list(list_settings(settings))
    if as_json:
        print_json({row.name: {"value": row.value, "given_by": row.given_by} for row in rows})
        return 0
    cells = [
        (name, str(value).lower() if isinstance(value, bool) else value, given_by)
        for name, value, given_by in rows
    ]
    print(format_table("", cells))
    return 0


def print_example() -> int:
    """`reo config init`: every setting with its meaning; all but EXAMPLES are comments, with their
    defaults.
    """
    lines = [
        f"# A settings file of reo {VERSION}. Set the two clusters and the topic; uncomment what",
        "# else you change. `reo check --settings FILE` tries it, `reo run --settings FILE` runs.",
    ]
    shown = [setting for setting in SETTINGS if not setting.candidate and setting.name != "topics"]
    section = ""
    for setting in sorted(shown, key=lambda each: "." in each.name):
        table, _, key = setting.name.rpartition(".")
        if table != section:
            section = table
            lines += ["", f"[{table}]"]
        lines += ["", *_describe(setting), _format_line(setting, key)]
    print("\n".join(lines))
    return 0


def _describe(setting: Setting) -> list[str]:
    """The meaning as comments; a link of Markdown is its text."""
    meaning = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", setting.meaning)
    if setting.choices:
        meaning += f" One of {', '.join(filter(None, setting.choices))}."
    return wrap(meaning, 98, initial_indent="# ", subsequent_indent="# ")


def _format_line(setting: Setting, key: str) -> str:
    if setting.name in EXAMPLES:
        return f"{key} = {orjson.dumps(EXAMPLES[setting.name]).decode()}"
    if setting.kind == "options":
        return f"#{key} = {{}}"
    default = "" if setting.default is None else setting.default
    return f"#{key} = {orjson.dumps(default).decode()}"
