"""`reo config show`: every setting in effect, and where its value comes from. `reo config import`:
makes a settings file from kaf-relay's.

Secrets and their lengths are never printed: only that a secret is set, and where it comes from.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from common.errors import SettingsInvalid
from common.settings import Settings, client_options
from common.settings.setting_index import SETTINGS
from reo import kaf_relay_import, kaf_relay_toml
from reo.kaf_relay_toml import ImportedSettings
from reo.output import align_columns

SECRET = "(secret)"  # noqa: S105  (printed instead of a secret)


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
        if setting.candidate and not settings.values[setting.name]:
            continue  # as for all candidates
        if setting.kind == "options":
            for option, text in sorted(settings.get_options(setting.name).items()):
                name = f"{setting.name}.{option}"
                yield SettingRow(name, client_options.redact(option, text), settings.given_by[name])
            continue
        value: Any = "" if settings.values[setting.name] is None else settings.values[setting.name]
        if setting.kind == "secret" and value:
            value = SECRET
        default = (
            "default"
            if value != "" or setting.name not in derived
            else "default, follows from others"
        )
        yield SettingRow(
            setting.name,
            derived.get(setting.name, value) if value == "" else value,
            settings.given_by.get(setting.name, default),
        )


def show_settings(settings: Settings, as_json: bool) -> int:
    """The sub-command; invalid settings have been refused before."""
    rows = list(list_settings(settings))
    if as_json:
        print(
            orjson.dumps(
                {row.name: {"value": row.value, "given_by": row.given_by} for row in rows}
            ).decode()
        )
        return 0
    print(
        "\n".join(
            align_columns(
                [
                    (
                        row.name,
                        str(row.value).lower() if isinstance(row.value, bool) else str(row.value),
                        row.given_by,
                    )
                    for row in rows
                ]
            )
        )
    )
    return 0


def import_relay(files: Sequence[str], with_secrets: bool, mode: str = "") -> int:
    """The sub-command: prints a settings file; keys without a counterpart go to standard error, and
    into the file as comments.
    """
    trees = []
    for file in files:
        try:
            trees.append(tomllib.loads(Path(file).read_text()))
        except (OSError, ValueError) as error:  # tomllib's and Unicode's errors are ValueErrors
            print(f"reo config import: {file}: {error}", file=sys.stderr)
            return SettingsInvalid.exit_code
    imported = kaf_relay_import.import_settings(
        kaf_relay_toml.merge_tables(trees), with_secrets, mode
    )
    _add_topics(imported)
    print(format_toml(imported))
    for key, why in imported.notes:
        print(f"reo config import: {key}: {why}", file=sys.stderr)
    return 0


def _add_topics(imported: ImportedSettings) -> None:
    """One topic becomes the settings of the one-topic form, from which all names follow; several
    become rules, which need an application name.
    """
    if len(imported.topics) == 1 and ":" not in next(iter(imported.topics.values())):
        ((source, destination),) = imported.topics.items()
        imported.values |= {"source.topic": source, "destination.topic": destination}
    elif imported.topics:
        imported.values |= {"application": "kaf-relay"} | {
            f"topics.{source}": target for source, target in imported.topics.items()
        }
        imported.note(
            "application",
            "has no default with several topics: the frontiers of all are stored under this name."
            " Choose one before the first start",
        )
    else:
        imported.note(
            "topics",
            "there is nothing to copy: kaf-relay has its topics on the command line, or none",
        )


def format_toml(imported: ImportedSettings) -> str:
    """The settings file, with the notes as comments above."""
    tables: dict[str, list[str]] = {}
    for name, value in imported.values.items():
        table, key = _split_name(name)
        tables.setdefault(table, []).append(f"{_format_key(key)} = {_format_value(value)}")
    lines = [f"# {key}: {why}" for key, why in imported.notes]
    for table in sorted(tables):
        lines += ["", *([f"[{table}]"] if table else []), *sorted(tables[table])]
    return "\n".join(lines).lstrip("\n")


def _split_name(name: str) -> tuple[str, str]:
    """The table of a dotted name, and the key in it: names of options and topics may have dots
    too.
    """
    for table in (*client_options.OPTION_TABLES, "topics"):
        if name.startswith(f"{table}."):
            return table, name.removeprefix(f"{table}.")
    return tuple(name.rsplit(".", 1)) if "." in name else ("", name)  # type: ignore[return-value]


def _format_key(key: str) -> str:
    return key if key.replace("_", "").isalnum() and key.isascii() else _format_value(key)


def _format_value(value: Any) -> str:
    """As JSON: its strings, numbers and booleans are valid TOML."""
    return orjson.dumps(value).decode().replace("\x7f", "\\u007f")
