"""The settings file: YAML by dynaconf, TOML, JSON and INI by the standard library.

A file of an unknown format, and a key that is there twice, are errors. YAML reads `topic: 1_000` as
the number 1000 and `topic: null` as no value: such a text must be in quotes.
"""

from __future__ import annotations

import configparser
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dynaconf import Dynaconf

ENCODING = "utf-8-sig"
"""With or without a byte order mark, which editors on Windows write."""
NO_SECTION = "no section"
QUOTED = re.compile(r"""(['"])((?:\\.|(?!\1).)*)\1""")
HARMLESS = re.compile(r"<.*>|\\?.?", re.DOTALL)
"""Of what YAML's parser and dynaconf quote: a kind of token, a character. All else is what the file
has there.
"""


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
        tree = PARSERS[path.suffix](path, content.decode(ENCODING))
    except AttributeError:  # dynaconf's, when YAML is no mapping
        tree = None
    except Exception as unreadable:  # each of the parsers has exceptions of its own
        raise ValueError(f"cannot be read: {_describe(unreadable)}") from None
    if not isinstance(tree, Mapping):
        # what is wrong with a file is a ValueError
        raise ValueError("names with values are expected, not one value or a list")  # noqa: TRY004
    return tree


def _describe(error: Any) -> str:
    """What a parser says, without what it repeats of the file: that may be a password."""
    if isinstance(error, configparser.ParsingError):
        lines = ", ".join(str(number - 1) for number, _ in error.errors)
        return f"[section] or name = value is expected in line {lines}"
    if isinstance(error, configparser.DuplicateOptionError):
        return f"{error.option} is there twice, again in line {(error.lineno or 1) - 1}"
    if isinstance(error, configparser.DuplicateSectionError):
        return f"[{error.section}] is there twice, again in line {(error.lineno or 1) - 1}"
    problem, mark = getattr(error, "problem", error), getattr(error, "problem_mark", None)
    repeated, is_twice, _ = str(problem).partition(" with value ")
    text = repeated if is_twice else QUOTED.sub(_hide, str(problem))
    return f"{text} in line {mark.line + 1}" if mark else text


def _hide(quoted: re.Match[str]) -> str:
    return quoted[0] if HARMLESS.fullmatch(quoted[2]) else "…"


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
