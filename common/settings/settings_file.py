"""The settings file: YAML by dynaconf, TOML, JSON and INI by the standard library; names in dots,
values as they are in the file.

A part of the file that cannot be used is an error, and is never ignored: a file of an unknown
format, an unknown setting, a key that is there twice, and a value that is not text.
YAML reads `topic: 1_000` as the number 1000 and `topic: null` as no value: such a text must be in
quotes.
"""

from __future__ import annotations

import configparser
import json
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from dynaconf import Dynaconf

SUFFIXES = (".toml", ".yaml", ".yml", ".json", ".ini")
ENCODING = "utf-8-sig"
"""With or without a byte order mark, which editors on Windows write."""
DEPTH_MAX = 2
"""`[section] key`: a deeper key is no setting, and in YAML it may refer to itself."""
NO_SECTION = "no section"
TOPICS = "topics."
CASE_SENSITIVE_SECTIONS = (TOPICS, "replicator.spark_options.")
"""In these sections the keys are names of topics and of Spark's options, which are
case-sensitive.
"""


def read_file(file: str) -> dict[str, Any]:
    """Dotted names and their values; ValueError with the reason when the file cannot be read."""
    path = Path(file)
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as missing:
        raise ValueError(
            f"the settings file does not exist or cannot be read ({missing})"
        ) from None
    if path.suffix not in SUFFIXES:
        raise ValueError(
            f"the name of a settings file must end with its format, one of {', '.join(SUFFIXES)}"
        )
    try:
        parse = PARSERS.get(path.suffix)
        tree = parse(content.decode(ENCODING)) if parse else _read_yaml(path)
        return dict(_flatten(tree))
    except Exception as unreadable:  # each of the parsers has exceptions of its own
        raise ValueError(f"cannot be read: {unreadable}") from None


def to_text(value: object) -> str:
    """The value of a text setting. A list, as users write several brokers, is joined by commas.
    ValueError for another type.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return ",".join(value)
    raise ValueError(
        f"a text is expected, not {str(value)[:40]!r} as the file's format reads it: put it in"
        " quotes"
    )


def _read_yaml(path: Path) -> Mapping[str, Any]:
    loaded: Mapping[str, Any] = Dynaconf(
        settings_files=[str(path.resolve())],
        loaders=[],
        environments=False,
        core_loaders=["YAML"],
        encoding=ENCODING,
    ).as_dict()
    return loaded


def _read_json(content: str) -> Mapping[str, Any]:
    tree: Mapping[str, Any] = json.loads(content, object_pairs_hook=_build_object)
    return tree


def _build_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """ValueError for a key that an object of JSON has twice; the other formats' parsers refuse it
    themselves.
    """
    names = [name for name, _ in pairs]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise ValueError(f"{repeated} is there twice")
    return dict(pairs)


def _read_ini(content: str) -> Mapping[str, Any]:
    """Without interpolation, so that `%` is a character; keys before the first section have no
    prefix.
    """
    parser = configparser.ConfigParser(interpolation=None, default_section="", strict=True)
    # `_flatten` normalizes the case
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(f"[{NO_SECTION}]\n{content}")
    sections = {name: dict(parser[name]) for name in parser.sections()}
    return {**sections.pop(NO_SECTION), **sections}


PARSERS: dict[str, Callable[[str], Mapping[str, Any]]] = {
    ".toml": tomllib.loads,
    ".json": _read_json,
    ".ini": _read_ini,
}
"""By the end of the file's name; YAML is read by dynaconf."""


def _flatten(
    tree: Mapping[str, Any], prefix: str = "", depth: int = 1
) -> Iterable[tuple[str, Any]]:
    for key, value in tree.items():
        name = _normalize_case(f"{prefix}{key}")
        if isinstance(value, Mapping) and depth < DEPTH_MAX:
            yield from _flatten(value, f"{name}.", depth + 1)
        else:
            yield name, value


def _normalize_case(name: str) -> str:
    """In lower case, except the names of topics and of Spark's options."""
    prefix_length = next(
        (len(section) for section in CASE_SENSITIVE_SECTIONS if name.lower().startswith(section)),
        len(name),
    )
    return name[:prefix_length].lower() + name[prefix_length:]
