"""The settings file: YAML by dynaconf, TOML, JSON and INI by the standard library.

A file of an unknown format, and a key that is there twice, are errors. YAML reads `topic: 1_000` as
the number 1000 and `topic: null` as no value: such a text must be in quotes.
"""

from __future__ import annotations

import configparser
import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dynaconf import Dynaconf

ENCODING = "utf-8-sig"
"""With or without a byte order mark, which editors on Windows write."""
NO_SECTION = "no section"


def read_file(file: str) -> Mapping[str, Any]:
    """The tables and values of a file; ValueError with the reason when it cannot be read."""
    path = Path(file)
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as missing:
        raise ValueError(
            f"the settings file does not exist or cannot be read ({missing})"
        ) from None
    if path.suffix not in PARSERS:
        raise ValueError(
            f"the name of a settings file must end with its format, one of {', '.join(PARSERS)}"
        )
    try:
        tree: Mapping[str, Any] = PARSERS[path.suffix](path, content.decode(ENCODING))
    except Exception as unreadable:  # each of the parsers has exceptions of its own
        raise ValueError(f"cannot be read: {unreadable}") from None
    return tree


def _read_yaml(path: Path, _: str) -> Mapping[str, Any]:
    loaded: Mapping[str, Any] = Dynaconf(
        settings_files=[str(path.resolve())],
        loaders=[],
        environments=False,
        core_loaders=["YAML"],
        encoding=ENCODING,
    ).as_dict()
    return loaded


def _build_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """ValueError for a key that is there twice, as the other formats' parsers raise."""
    names = [name for name, _ in pairs]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise ValueError(f"{repeated} is there twice")
    return dict(pairs)


def _read_ini(_: Path, content: str) -> Mapping[str, Any]:
    """Keys before the first section have no prefix; `%` is a character like others."""
    parser = configparser.ConfigParser(interpolation=None, default_section="", strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keeps upper case
    parser.read_string(f"[{NO_SECTION}]\n{content}")
    sections = {name: dict(parser[name]) for name in parser.sections()}
    return {**sections.pop(NO_SECTION), **sections}


PARSERS: dict[str, Callable[[Path, str], Any]] = {
    ".toml": lambda _, content: tomllib.loads(content),
    ".yaml": _read_yaml,
    ".yml": _read_yaml,
    ".json": lambda _, content: json.loads(content, object_pairs_hook=_build_object),
    ".ini": _read_ini,
}
"""By the end of the file's name."""
