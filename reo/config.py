"""`reo config show`: every setting in effect, and where its value comes from. `reo config import`:
makes a settings file from kaf-relay's or MirrorMaker 2's.

Secrets and their lengths are never printed: only that a secret is set, and where it comes from.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from common.errors import SettingsInvalid
from common.settings import Settings, client_options
from common.settings.setting_index import SETTINGS
from reo import kaf_relay_import, kaf_relay_toml, mirrormaker_import, mirrormaker_properties
from reo.imported_settings import ImportedSettings
from reo.output import align_columns

SIDES = ("source", "target")
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


def import_files(files: Sequence[str], with_secrets: bool, mode: str = "", flow: str = "") -> int:
    """The sub-command: prints a settings file; keys without a counterpart go to standard error, and
    into the file as comments.
    """
    try:
        texts = {file: Path(file).read_text() for file in files}
        imported = _import_texts(texts, with_secrets, mode, flow)
    except (OSError, ValueError) as error:  # parsers' and Unicode's errors are ValueErrors
        print(f"reo config import: {', '.join(files)}: {error}", file=sys.stderr)
        return SettingsInvalid.exit_code
    print(format_toml(imported))
    for key, why in imported.notes:
        print(f"reo config import: {key}: {why}", file=sys.stderr)
    return 0


def _import_texts(
    texts: Mapping[str, str], with_secrets: bool, mode: str, flow: str
) -> ImportedSettings:
    """Of one program: what a later file says wins."""
    if any(mirrormaker_properties.is_mirrormaker(*file) for file in texts.items()):
        chosen = mirrormaker_properties.read_flow(texts.values(), flow)
        imported = mirrormaker_import.import_settings(chosen, with_secrets)
        aliases = [chosen.properties.get(f"{side}.cluster.alias", side) for side in SIDES]
        _add_topics(imported, "-".join(["reo", *aliases]))
    else:
        imported = kaf_relay_import.import_settings(
            kaf_relay_toml.merge_tables([tomllib.loads(text) for text in texts.values()]),
            with_secrets,
            mode,
        )
        _add_topics(imported, "kaf-relay")
    return imported


def _add_topics(imported: ImportedSettings, application: str) -> None:
    """One topic becomes the settings of the one-topic form, from which all names follow; several
    become rules, which need an application name.
    """
    (source, destination), *more = [*imported.topics.items(), ("", "")]
    if len(more) == 1 and ":" not in destination and not source.startswith("^"):
        imported.values |= {"source.topic": source, "destination.topic": destination}
    elif imported.topics:
        imported.values |= {"application": application} | {
            f"topics.{source}": target for source, target in imported.topics.items()
        }
        imported.note(
            "application",
            "has no default with several topics: the frontiers of all are stored under this name."
            " Choose one before the first start",
        )
    else:
        imported.note("topics", "there is nothing to copy: no topic is named")


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
