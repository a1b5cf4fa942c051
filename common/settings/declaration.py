"""How a setting is declared: as a field of a frozen dataclass, a section, with its meaning as the
docstring behind it (`common.settings.schema`). No I/O but for the module's own source.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

Kind = Literal["text", "integer", "flag", "start", "secret", "options", "object"]
T = TypeVar("T", bound=str | int | None)
METADATA = "setting"
Options = Mapping[str, str]
"""Raw options of a client by name."""
KINDS: Mapping[object, Kind] = {
    str: "text",
    int: "integer",
    int | None: "integer",
    bool: "flag",
    Options: "options",
}
"""By the type of the field. A text of a special form says so (`declare`)."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, bounded by `choices` or a range; a `required` one has no default."""

    name: str
    kind: Kind
    default: str | int | bool | None
    meaning: str
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    minimum: int = 0
    maximum: int = 2**31 - 1
    required: bool = False
    candidate: int = 0
    """The source candidate that it belongs to, from 1; 0 for settings of all, or of none."""

    @property
    def environment(self) -> tuple[str, ...]:
        """The environment variables that set it; the first is reo's own. A raw option has one of
        its own (`client_options.get_variable`).
        """
        own = "REO_" + self.name.upper().replace(".", "_")
        return () if self.kind == "options" else (own, *self.aliases)

    @property
    def file_variable(self) -> str:
        """The environment variable that names the file with a secret."""
        return self.environment[0] + "_FILE"


def declare(
    default: T,
    *aliases: str,
    minimum: int = 0,
    maximum: int = 2**31 - 1,
    required: bool = False,
    kind: Literal["text", "start", "secret", "object"] = "text",
) -> T:
    """A field for a setting. Its `kind` is needed only for a text of a special form; name, choices
    and meaning follow from the field itself.
    """
    setting = Setting("", kind, default, "", aliases, (), minimum, maximum, required)
    hidden = kind in {"secret", "object"}
    return field(default=default, metadata={METADATA: setting}, repr=not hidden)


def declare_options() -> Options:
    """A field for a table of raw options."""
    metadata = {METADATA: Setting("", "options", "", "")}
    return field(default_factory=dict, metadata=metadata, repr=False)


@cache
def list_fields(section: type) -> list[tuple[Field[Any], str, Any, bool]]:
    """Each field, its name without a final underscore, its type, and if that is a section."""
    hints = get_type_hints(section)
    return [
        (each, each.name.rstrip("_"), hints[each.name], is_dataclass(hints[each.name]))
        for each in fields(section)
    ]


def list_settings(section: type, prefix: str = "") -> Iterator[Setting]:
    """The settings of a section, and of what is declared apart in it:
    `settings.source.security.sasl_password` is `source.sasl_password`.
    """
    meanings = _read_meanings(section)
    for declared, name, hint, is_section in list_fields(section):
        if is_section:
            yield from list_settings(hint, prefix or f"{name}.")
            continue
        setting: Setting = declared.metadata[METADATA]
        choices = get_args(hint) if get_origin(hint) is Literal else ()
        yield replace(
            setting,
            name=f"{prefix}{name}",
            kind=setting.kind if choices or setting.kind != "text" else KINDS[hint],
            choices=choices,
            meaning=meanings[declared.name],
        )


def build_sections(section: type, values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The arguments that make a section of these values, which have its types."""
    return {
        declared.name: (
            hint(**build_sections(hint, values, prefix or f"{name}."))
            if is_section
            else values[f"{prefix}{name}"]
        )
        for declared, name, hint, is_section in list_fields(section)
    }


@cache
def _parse_classes(module: str) -> dict[str, ast.ClassDef]:
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def _read_meanings(section: type) -> dict[str, str]:
    """The docstring behind each field of a class."""
    body = _parse_classes(section.__module__)[section.__name__].body
    return {
        declared.target.id: " ".join(ast.literal_eval(behind.value).split())
        for declared, behind in pairwise(body)
        if isinstance(declared, ast.AnnAssign)
        and isinstance(declared.target, ast.Name)
        and isinstance(behind, ast.Expr)
    }
