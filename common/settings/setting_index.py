"""Every setting in one table, by name and by environment variable. It follows from the declarations
in `common.settings.root_section`. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import Field, fields, is_dataclass, replace
from functools import cache
from typing import Any, get_type_hints

from common.settings.cluster_sections import Source
from common.settings.declaration import Setting, describe
from common.settings.root_section import Schema
from common.settings.security import Security
from common.settings.source_candidate_settings import CANDIDATES_MAX, build_candidate_setting_name


@cache
def _list_fields(schema: type) -> list[tuple[Field[Any], str, Any, bool]]:
    """Each field, its name without the underscore that tells it from a keyword, its type, and
    whether that is a section.
    """
    hints = get_type_hints(schema)
    return [
        (field, field.name.rstrip("_"), hints[field.name], is_dataclass(hints[field.name]))
        for field in fields(schema)
    ]


def _list_settings(schema: type, prefix: str = "") -> Iterator[Setting]:
    """The settings of a section, and of what is declared apart in it:
    `settings.source.security.sasl_password` is `source.sasl_password`.
    """
    for field, name, hint, is_section in _list_fields(schema):
        if is_section:
            yield from _list_settings(hint, prefix or f"{name}.")
        else:
            yield describe(field, f"{prefix}{name}", hint)
        if hint is Source:
            yield from (
                setting
                for number in range(1, CANDIDATES_MAX + 1)
                for setting in _list_candidate_settings(number)
            )


def _list_candidate_settings(number: int) -> Iterator[Setting]:
    """The settings that one of several source candidates can override. Empty: the value of
    `source.…`.
    """
    for setting in _list_settings(Security, "source."):
        yield replace(
            setting,
            name=build_candidate_setting_name(number, setting.name),
            default="",
            choices=setting.choices and ("", *filter(None, setting.choices)),
            candidate=number,
        )
    yield Setting(
        build_candidate_setting_name(number, "source.consumer_options"),
        "options",
        "",
        "Raw options of that consumer, for this candidate alone.",
        candidate=number,
    )


def build_sections(schema: type, values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The arguments that make a section of the settings' values, which are of the types that the
    section declares (`common.settings`).
    """
    return {
        field.name: (
            hint(**build_sections(hint, values, prefix or f"{name}."))
            if is_section
            else values[f"{prefix}{name}"]
        )
        for field, name, hint, is_section in _list_fields(schema)
    }


SETTINGS: tuple[Setting, ...] = tuple(_list_settings(Schema))
BY_NAME = {setting.name: setting for setting in SETTINGS}
BY_ENVIRONMENT = {name: setting for setting in SETTINGS for name in setting.environment}
SECRETS = {setting.file_variable: setting for setting in SETTINGS if setting.kind == "secret"}
