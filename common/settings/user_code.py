"""Whether the user's own code can be imported and called: functions of filters and mappings, the
destination's class.

Importing runs it, so it is no part of the settings' check (`common.settings`), which every command
makes. The start of stage two and `reo check` ask here.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from common import filters, partition_mapping
from common.errors import SettingsInvalid
from common.settings import Settings, destination_kind
from common.settings.names_in_messages import spell
from common.settings.settings_sources import RawSetting


def check_user_code(settings: Settings) -> None:
    """SettingsInvalid lists everything that cannot be used."""
    errors = list(dict.fromkeys(_list_errors(settings)))
    if errors:
        settings_by_name = {
            name: RawSetting(where, None, ": " in where)
            for name, where in settings.given_by.items()
        }
        uses_files = any(setting.in_file for setting in settings_by_name.values())
        raise SettingsInvalid(
            "\n  ".join(
                [
                    f"{len(errors)} setting(s) are wrong:",
                    *(spell(error, settings_by_name, uses_files) for error in errors),
                ]
            )
        )


def list_names(settings: Settings) -> list[str]:
    """Everything of the user's own code that these settings name."""
    mappings = [
        rule.mapping
        for rule in settings.rules
        if partition_mapping.FUNCTION.fullmatch(rule.mapping)
    ]
    return [
        *dict.fromkeys(mappings),
        *filters.split_names(settings.filter.function),
        *filter(None, [settings.destination.class_]),
    ]


def _list_errors(settings: Settings) -> Iterator[str]:
    for rule in settings.rules:
        if partition_mapping.FUNCTION.fullmatch(rule.mapping):
            yield from (
                f"topics: the mapping {rule.mapping} cannot be used: {reason}"
                for reason in _list_call_errors(rule.mapping)
            )
    options = filters.parse_options(settings.filter.options)
    for name in filters.split_names(settings.filter.function):
        reasons = [*_list_call_errors(name)] or [*_list_option_errors(name, options.get(name, {}))]
        yield from (f"filter.function {name} cannot be used: {reason}" for reason in reasons)
    name = settings.destination.class_
    if name:
        yield from (
            f"{destination_kind.DESTINATION_CLASS} {name} cannot be used: {reason}"
            for reason in _list_call_errors(name)
        )


def _list_call_errors(text: str) -> Iterator[str]:
    """The reasons why the function, or the class, of `module:function` cannot be called."""
    try:
        if not callable(partition_mapping.load_function(text)):
            yield "it cannot be called"
    except ValueError as reason:
        yield str(reason)


def _list_option_errors(name: str, options: dict[str, Any]) -> Iterator[str]:
    """Whether the function takes a record and these keyword arguments."""
    try:
        inspect.signature(partition_mapping.load_function(name)).bind(None, **options)
    except TypeError as refused:
        yield (
            f"it does not take a record and these filter.options ({', '.join(options) or 'none'}):"
            f" {refused}"
        )
    except ValueError:
        return  # a function in C may have no signature
