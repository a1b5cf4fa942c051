"""What `reo config import` makes of another program's configuration, and a table of that one.

A table gives its keys away one by one, and notes those that are left at the end: so no key is
dropped silently. A secret becomes a setting only on request, because what is printed ends up in
logs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from common.settings.schema import BY_NAME, OPTION_TABLES

Tree = dict[str, Any]


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

    def set_topics(self, application: str) -> None:
        """One topic becomes the settings of the one-topic form, from which all names follow;
        several become rules, which need an application name.
        """
        (source, destination), *more = [*self.topics.items(), ("", "")]
        if len(more) == 1 and ":" not in destination and not source.startswith("^"):
            self.values |= {"source.topic": source, "destination.topic": destination}
        elif self.topics:
            self.values |= {"application": application} | {
                f"topics.{source}": target for source, target in self.topics.items()
            }
            self.note(
                "application",
                "has no default with several topics: the frontiers of all are stored under this"
                " name. Choose one before the first start",
            )
        else:
            self.note("topics", "there is nothing to copy: no topic is named")

    def format_toml(self) -> str:
        """The settings file, with the notes as comments above."""
        tables: dict[str, list[str]] = {}
        for name, value in self.values.items():
            table, key = _split_name(name)
            tables.setdefault(table, []).append(f"{_format_key(key)} = {_format_value(value)}")
        lines = [f"# {key}: {why}" for key, why in self.notes]
        for table in sorted(tables):
            lines += ["", *([f"[{table}]"] if table else []), *sorted(tables[table])]
        return "\n".join(lines).lstrip("\n")


class Table:
    """One table of the file: its keys are removed by name, and `end` notes the remaining ones."""

    def __init__(
        self,
        into: ImportedSettings,
        path: str,
        content: object,
        names: Mapping[str, str] | None = None,
    ) -> None:
        """`names` has the names that the user wrote, where the table's keys are others."""
        self.into, self.path, self.names = into, path, names or {}
        if content is not None and not isinstance(content, Mapping):
            into.note(path, "a table is expected; it is not imported")
        self.left: Tree = dict(content) if isinstance(content, Mapping) else {}

    def take(self, key: str) -> Any:
        """Remove a key and return its value; None when it is missing or empty."""
        value = self.left.pop(key, None)
        return None if value in ("", []) else value

    def note(self, key: str, why: str) -> None:
        """Add a note about one of its keys."""
        self.into.note(f"{self.path}.{key}" if self.path else self.names.get(key, key), why)

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

    def note_secret(self, key: str, setting: str) -> None:
        """Note that a secret is left out, and how to give it."""
        variable = BY_NAME[setting].environment[0]
        self.note(
            key,
            f"secrets are not printed: set {variable}, or name a file in {variable}_FILE; or import"
            " with --with-secrets",
        )

    def end(self, program: str) -> None:
        """Note the remaining keys."""
        for key in self.left:
            self.note(key, f"unknown key of {program}; it is not imported")


def _split_name(name: str) -> tuple[str, str]:
    """The table of a dotted name, and the key in it: names of options and topics may have dots
    too.
    """
    for table in (*OPTION_TABLES, "topics"):
        if name.startswith(f"{table}."):
            return table, name.removeprefix(f"{table}.")
    return tuple(name.rsplit(".", 1)) if "." in name else ("", name)  # type: ignore[return-value]


def _format_key(key: str) -> str:
    return key if key.replace("_", "").isalnum() and key.isascii() else _format_value(key)


def _format_value(value: Any) -> str:
    """As JSON: its strings, numbers and booleans are valid TOML."""
    return orjson.dumps(value).decode().replace("\x7f", "\\u007f")
