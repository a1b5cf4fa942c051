"""Whether the user's own code can be imported and called: functions of filters and mappings, the
destination's class.

Importing runs it, so it is no part of the settings' check (`common.settings`), which every command
makes. The start of stage two and `reo check` ask here.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from common.partition_mapping import FUNCTION, load_function
from common.settings.refusal import Refusal, refuse
from common.settings.settings import Settings

METHODS = {
    "exactly-once": ("take_over", "read_positions", "last_source_offset", "commit"),
    "at-least-once": ("commit",),
}
"""What a class needs (`deduplicator.own_destination.Store`), by `destination.guarantee`."""


def check_user_code(settings: Settings) -> None:
    """SettingsInvalid lists everything that cannot be used."""
    errors = [refusal.spell(settings.given_by) for refusal in _find_refusals(settings)]
    if errors:
        raise refuse(errors)


def has_check(settings: Settings) -> bool:
    """Whether the class of `destination.class` can be used, and checks its store."""
    name = settings.destination.class_
    return bool(name) and not _explain_load(name) and hasattr(load_function(name), "check")


def list_names(settings: Settings) -> list[str]:
    """Everything of the user's own code that these settings name."""
    class_ = settings.destination.class_
    return [*_list_mappings(settings), *settings.filter.functions, *([class_] if class_ else [])]


def _list_mappings(settings: Settings) -> list[str]:
    mappings = dict.fromkeys(rule.mapping for rule in settings.rules)
    return [mapping for mapping in mappings if FUNCTION.fullmatch(mapping)]


def _find_refusals(settings: Settings) -> Iterator[Refusal]:
    for name in _list_mappings(settings):
        if why := _explain_load(name):
            yield Refusal("{topics}: the mapping {name} cannot be used: {why}", name=name, why=why)
    for name in settings.filter.functions:
        keywords = settings.filter.keywords.get(name, {})
        if why := _explain_load(name):
            yield Refusal("{filter.function} {name} cannot be used: {why}", name=name, why=why)
        elif why := _explain_call(name, keywords):
            yield Refusal(
                "{filter.function} {name} cannot be used: it does not take a record and these"
                " {filter.options} ({keywords}): {why}",
                name=name,
                keywords=", ".join(keywords) or "none",
                why=why,
            )
    name = settings.destination.class_
    if name and (why := _explain_load(name) or _explain_guarantee(name, settings)):
        yield Refusal("{destination.class} {name} cannot be used: {why}", name=name, why=why)


def _explain_guarantee(name: str, settings: Settings) -> str:
    """Why the class cannot keep what `destination.guarantee` says; empty when it can."""
    needed = METHODS[settings.destination.guarantee]
    missing = [method for method in needed if not hasattr(load_function(name), method)]
    if not missing:
        return ""
    without = "" if "commit" in missing else ", or set destination.guarantee=at-least-once"
    return f"it has no {', '.join(missing)}. Add what is missing{without}"


def _explain_load(text: str) -> str:
    """Why the function, or the class, of `module:function` cannot be called; empty when it can."""
    try:
        return "" if callable(load_function(text)) else "it cannot be called"
    except ValueError as reason:
        return str(reason)


def _explain_call(name: str, keywords: dict[str, Any]) -> str:
    """Why the function does not take a record and these keyword arguments; empty when it does."""
    try:
        inspect.signature(load_function(name)).bind(None, **keywords)
    except TypeError as refused:
        return str(refused)
    except ValueError:
        pass  # a function in C may have no signature
    return ""
