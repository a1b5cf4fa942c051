"""What `reo config import` makes of another program's configuration.

The configuration is one flat table of keys. Each line that knows a key takes it away, as a setting
or with a note, and `end` notes those that are left: so no key is dropped silently.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from common.settings import client_options
from common.settings.conversion import convert
from common.settings.schema import BY_NAME, OPTION_TABLES

EMPTY: tuple[object, ...] = ("", [], None)


class ImportedSettings:
    """The dotted settings with their values, the topic rules, and a note for each key that is
    dropped or changed. `names` has the names that the user wrote, where those of `keys` are others.
    A secret becomes a setting only on request, because what is printed ends up in logs.
    """

    def __init__(
        self,
        program: str,
        keys: Mapping[str, Any],
        with_secrets: bool = False,
        names: Mapping[str, str] | None = None,
    ) -> None:
        self.program, self.with_secrets, self.names = program, with_secrets, names or {}
        self.left = dict(keys)
        self.values: dict[str, Any] = {}
        self.topics: dict[str, str] = {}
        self.notes: list[tuple[str, str]] = []

    def note(self, key: str, why: str) -> None:
        """Note why a key is dropped or changed."""
        key = self.names.get(key, key)
        self.notes.append((" ".join(key.split()), " ".join(why.split())))

    def find(self, pattern: str) -> list[str]:
        """The keys that are left and match as a whole."""
        return [key for key in self.left if re.fullmatch(pattern, key)]

    def drop(self, pattern: str, why: str) -> None:
        """Note each key that matches and has a value."""
        for key in self.find(pattern):
            if self.left.pop(key) not in EMPTY:
                self.note(key, why)

    def put(
        self, key: str, setting: str, translate: Callable[[Any], Any] = lambda value: value
    ) -> None:
        """Make a key a setting; a value that the setting cannot have is noted."""
        value = self.left.pop(key, None)
        if value not in EMPTY:
            try:
                self.set(key, setting, translate(value))
            except (ValueError, KeyError, TypeError) as reason:
                self.note(key, f"{value!r} has no counterpart in {setting}: {reason}")

    def set(self, key: str, setting: str, value: Any) -> None:
        """Give a setting the value that a key has in some form, or note how to give it when it is a
        secret; ValueError when the setting cannot have it.
        """
        declared, option = BY_NAME.get(setting), client_options.split_name(setting)
        is_secret = declared is not None and declared.kind == "secret"
        if declared and is_secret and not self.with_secrets:
            variable = f"{declared.environment[0]}, or name a file in {declared.file_variable}"
        elif option and client_options.is_secret(option[1], value) and not self.with_secrets:
            variable = client_options.get_variable(*option)
        else:
            variable = ""
        if variable:
            self.note(
                key, f"secrets are not printed: set {variable}; or import with --with-secrets"
            )
        else:
            self.values[setting] = convert(declared, value) if declared and not is_secret else value

    def end(self, reasons: Mapping[str, str]) -> None:
        """Note what is left: with the reason of the first pattern that fits, or as unknown."""
        for pattern, why in reasons.items():
            self.drop(pattern, why)
        self.drop(".*", f"unknown key of {self.program}; it is not imported")

    def set_topics(self, application: str) -> None:
        """One topic becomes the settings of the one-topic form, from which all names follow;
        several become rules, which need an application name.
        """
        (source, destination), *more = [*self.topics.items(), ("", "")]
        if len(more) == 1 and ":" not in destination and not source.startswith("^"):
            self.values |= {"source.topic": source, "destination.topic": destination}
        elif self.topics:
            self.values["application"] = application
            self.values |= {f"topics.{name}": target for name, target in self.topics.items()}
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
            is_bare = re.fullmatch(r"[A-Za-z0-9_]+", key)
            line = f"{key if is_bare else _format_value(key)} = {_format_value(value)}"
            tables.setdefault(table, []).append(line)
        lines = [f"# {key}: {why}" for key, why in self.notes]
        for table in sorted(tables):
            lines += ["", *([f"[{table}]"] if table else []), *sorted(tables[table])]
        return "\n".join(lines).lstrip("\n")


def _split_name(name: str) -> tuple[str, str]:
    """The table of a dotted name, and the key in it: names of options and topics may have dots
    too.
    """
    for table in (*OPTION_TABLES, "topics"):
        if name.startswith(f"{table}."):
            return table, name.removeprefix(f"{table}.")
    table, _, key = name.rpartition(".")
    return table, key


def _format_value(value: Any) -> str:
    """As JSON: its strings, numbers and booleans are valid TOML."""
    return orjson.dumps(value).decode().replace("\x7f", "\\u007f")
