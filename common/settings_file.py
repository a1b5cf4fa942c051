"""The settings file: TOML, YAML or JSON by dynaconf, INI by the standard library; names in dots, values as they are in the file.

What is in the file and cannot be used is an error, never left out: a file of an unknown form, which dynaconf would not read and not
mention; a name that no setting has; and a text that is no text. `topic: 1_000` is the number 1000 to YAML and `topic: null` is none: what
was meant is known only when it stands in quotes.
"""

from __future__ import annotations

import configparser
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dynaconf import Dynaconf

BY_DYNACONF = (".toml", ".yaml", ".yml", ".json")
FORMS = (*BY_DYNACONF, ".ini")
DEPTH_MAX = 2
"""`[section] key`: what lies deeper is no setting, and may refer to itself in YAML."""
NO_SECTION = "no section"
TOPICS = "topics."
CASED = (TOPICS, "replicator.spark_options.")
"""In these sections keys are names of topics, and of Spark's options, which are told apart by upper and lower case."""


def read(file: str) -> dict[str, Any]:
    """Dotted names and their values; ValueError with the reason when the file cannot be read."""
    path = Path(file)
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as missing:
        raise ValueError(f"there is no such settings file, or it may not be read ({missing})") from None
    if path.suffix not in FORMS:
        raise ValueError(f"the form of a settings file is known by its name, which has to end with one of {', '.join(FORMS)}")
    try:
        tree = _ini(content.decode()) if path.suffix == ".ini" else _by_dynaconf(path)
        return dict(_flatten(tree))
    except Exception as unreadable:  # each of the parsers has exceptions of its own
        raise ValueError(f"cannot be read: {unreadable}") from None


def text(value: object) -> str:
    """A text setting's value; a list is what INI's and YAML's users write for several brokers. ValueError for what is no text."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return ",".join(value)
    raise ValueError(f"a text is expected, not {str(value)[:40]!r} as the file's form reads it: put it in quotes")


def _by_dynaconf(path: Path) -> Mapping[str, Any]:
    loaded: Mapping[str, Any] = Dynaconf(settings_files=[str(path.resolve())], loaders=[], environments=False,
                                         core_loaders=["TOML", "YAML", "JSON"]).as_dict()
    return loaded


def _ini(content: str) -> Mapping[str, Any]:
    """Without interpolation, so that `%` is a character; what stands before the first section has no prefix."""
    parser = configparser.ConfigParser(interpolation=None, default_section="", strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # `_flatten` knows which case counts
    parser.read_string(f"[{NO_SECTION}]\n{content}")
    sections = {name: dict(parser[name]) for name in parser.sections()}
    return {**sections.pop(NO_SECTION), **sections}


def _flatten(tree: Mapping[str, Any], prefix: str = "", depth: int = 1) -> Iterable[tuple[str, Any]]:
    for key, value in tree.items():
        name = _named(f"{prefix}{key}")
        if isinstance(value, Mapping) and depth < DEPTH_MAX:
            yield from _flatten(value, f"{name}.", depth + 1)
        else:
            yield name, value


def _named(name: str) -> str:
    """In lower case, but for what is somebody else's name."""
    kept = next((len(section) for section in CASED if name.lower().startswith(section)), len(name))
    return name[:kept].lower() + name[kept:]
