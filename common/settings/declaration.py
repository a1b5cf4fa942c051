"""How one setting is declared: as a field of a dataclass (`common.settings.root_section`), with
what else belongs to it in the field's metadata. No I/O.
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field, replace
from typing import Any, Literal, TypeVar, get_args, get_origin

Kind = Literal["text", "integer", "flag", "start", "secret", "options", "object"]
T = TypeVar("T", bound=str | int | None)
METADATA = "setting"
KINDS: dict[object, Kind] = {
    str: "text",
    int: "integer",
    int | None: "integer",
    bool: "flag",
    dict[str, str]: "options",
}
"""By the type of the field. A text of a special form says so (`declare`)."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting; `choices` or the range `minimum`..`maximum` bound it, `required` ones have no
    default.
    """

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
    """The number of the source candidate that it belongs to, from 1; 0 when it belongs to all
    candidates, or to none.
    """

    @property
    def environment(self) -> tuple[str, ...]:
        """The environment variables that set it; the first is reo's own. A raw option has one of
        its own (`client_options.get_variable`).
        """
        if self.kind == "options":
            return ()
        return ("REO_" + self.name.upper().replace(".", "_"), *self.aliases)

    @property
    def file_variable(self) -> str:
        """The environment variable that names the file with a secret."""
        return self.environment[0] + "_FILE"


def declare(
    default: T,
    meaning: str,
    *aliases: str,
    minimum: int = 0,
    maximum: int = 2**31 - 1,
    required: bool = False,
    kind: Literal["text", "start", "secret", "object"] = "text",
) -> T:
    """A field for a setting. Its `kind` is needed only for a text of a special form; name and
    choices follow from the field itself.
    """
    setting = Setting("", kind, default, meaning, aliases, (), minimum, maximum, required)
    return field(
        default=default, metadata={METADATA: setting}, repr=kind not in ("secret", "object")
    )


def declare_options(client: str) -> dict[str, str]:
    """A field for a table of raw options."""
    return field(
        default_factory=dict,
        metadata={METADATA: Setting("", "options", "", f"Raw options of {client}.")},
        repr=False,
    )


def describe(declared: Field[Any], name: str, hint: object) -> Setting:
    """The setting that a field with this type declares. `{side}` in its meaning is the section."""
    setting: Setting = declared.metadata[METADATA]
    choices = get_args(hint) if get_origin(hint) is Literal else ()
    kind = setting.kind if choices or setting.kind != "text" else KINDS[hint]
    return replace(
        setting,
        name=name,
        kind=kind,
        choices=choices,
        meaning=setting.meaning.replace("{side}", name.partition(".")[0]),
    )
