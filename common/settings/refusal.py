"""Why settings are refused: their dotted names, and a text in which each of them is spelled, when
it is printed, as the user spelled it: as the variable or the option that gave the value, or as the
dotted name where that stands in a settings file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from common.errors import SettingsInvalid
from common.settings.schema import BY_NAME

FIELD = re.compile(r"{([a-z0-9_.]*)}")


class Origin(NamedTuple):
    """Where a value comes from: a variable, an option of the command line, or a name in a file."""

    name: str
    file: str = ""

    def __str__(self) -> str:
        return f"{self.file}: {self.name}" if self.file else self.name


class Refusal:
    """What contradicts itself. In the text a setting's name stands in braces, as does the name of
    each of the `values`; `{}` is the next of the names that are given beside the text.
    """

    def __init__(self, text: str, *names: str, **values: object) -> None:
        self.names: list[str] = []
        self.values = values
        beside = iter(names)

        def note_name(field: re.Match[str]) -> str:
            if field[1] in values:
                return field[0]
            self.names.append(field[1] or next(beside))
            return "{}"

        self.text = FIELD.sub(note_name, text)

    def spell(self, given_by: Mapping[str, Origin]) -> str:
        """The text with each name as its origin has it; of one that is not set, as the others are:
        by a file or by variables.
        """
        spelled = [_spell_name(name, given_by) for name in self.names]
        return self.text.format(*spelled, **self.values)


def _spell_name(name: str, given_by: Mapping[str, Origin]) -> str:
    if name in given_by:
        return given_by[name].name
    if has_files(given_by) or name not in BY_NAME or not BY_NAME[name].environment:
        return name
    return BY_NAME[name].environment[0]


def has_files(given_by: Mapping[str, Origin]) -> bool:
    """Whether the user writes settings files."""
    return any(origin.file for origin in given_by.values())


def refuse(errors: Sequence[str], what: str = "setting", where: str = "") -> SettingsInvalid:
    """One error with all of these."""
    count = f"1 {what} is" if len(errors) == 1 else f"{len(errors)} {what}s are"
    return SettingsInvalid("\n  ".join([f"{where}{count} wrong:", *errors]))
