"""One setting: from the given text, or the value of a settings file, to a value of its kind."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from common.settings import (
    client_options,
    settings_file,
)
from common.settings import start_position as start_at
from common.settings.declaration import Setting
from common.settings.settings import Value
from common.settings.settings_sources import RawSettings

FLAGS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def _parse_options(name: str, raw: RawSettings) -> dict[str, str]:
    options = {}
    for key, setting in raw.values.items():
        if key.startswith(f"{name}."):
            try:
                options[key.removeprefix(f"{name}.")] = client_options.to_text(setting.value)
            except ValueError as reason:
                raw.errors.append(f"{setting.where}: {reason}")
    return options


def convert_setting(setting: Setting, raw: RawSettings, hint: str) -> Value:
    """The value of a setting, or its default. Errors are added to `raw`; `hint` is added where a
    required setting is missing.
    """
    if setting.kind == "options":
        return _parse_options(setting.name, raw)
    if setting.name not in raw.values:
        if setting.required and not raw.unreadable_file:
            raw.fail(
                setting.name,
                f"{raw.spell_missing(setting)} is missing{hint}: {setting.meaning}",
            )
        return setting.default
    raw_value = raw.values[setting.name]
    try:
        return convert(setting, raw_value.value)
    except ValueError as reason:
        raw.fail(setting.name, f"{raw_value.where}: {reason}")
        return setting.default


def convert(setting: Setting, raw_value: Any) -> Value:
    """The value of a setting; ValueError when the setting cannot have it."""
    if raw_value is None:  # in YAML, a key without a value
        raise ValueError("it has no value: write one, or remove the key")
    if setting.kind in ("secret", "object"):
        return (
            _check_secret(raw_value) if setting.kind == "secret" else _parse_json_object(raw_value)
        )
    free = setting.kind == "text" and not setting.choices
    text = (settings_file.to_text(raw_value) if free else str(raw_value)).strip()
    # a client's configuration and a child's environment take neither NUL nor what is no UTF-8
    if not text.isprintable():
        raise ValueError(f"printable characters are expected, not {text!r}")
    if setting.kind == "flag":
        if text.lower() not in FLAGS:
            raise ValueError(f"true or false is expected, not {text!r}")
        return FLAGS[text.lower()]
    if setting.kind == "integer":
        return _parse_integer(setting, text)
    if setting.kind == "start":
        start_at.parse(text)
    if setting.choices:
        return _find_choice(setting.choices, text)
    if setting.required and not text:
        raise ValueError("must not be empty")
    return text


def _parse_integer(setting: Setting, text: str) -> int:
    if (
        not re.fullmatch(r"-?[0-9]{1,12}", text)
        or not setting.minimum <= int(text) <= setting.maximum
    ):
        raise ValueError(
            f"a whole number from {setting.minimum} to {setting.maximum} is expected, not {text!r}"
        )
    return int(text)


def _find_choice(choices: Sequence[str], text: str) -> str:
    """The choice that is this text, in upper or lower case."""
    for choice in choices:
        if choice.lower() == text.lower():
            return choice
    raise ValueError(f"one of {', '.join(filter(None, choices))} is expected, not {text!r}")


def _parse_json_object(raw_value: Any) -> str:
    """A table of a settings file, or the text of a JSON object, as JSON; empty for an empty one."""
    try:
        value = (
            raw_value if isinstance(raw_value, Mapping) else orjson.loads(str(raw_value) or "{}")
        )
        if not isinstance(value, Mapping):
            # what is wrong with a setting is a ValueError
            raise ValueError("another value")  # noqa: TRY004
        return orjson.dumps(dict(value)).decode() if value else ""
    except (ValueError, TypeError):
        raise ValueError(
            'a JSON object like {"module:function": {"name": "value"}} is expected, not'
            f" {str(raw_value)[:60]!r}"
        ) from None


def _check_secret(raw_value: Any) -> str:
    """The secret unchanged, including blanks; error messages do not repeat it."""
    if not isinstance(raw_value, str):
        # what is wrong with a setting is a ValueError
        raise ValueError("a text is expected: put it in quotes")  # noqa: TRY004
    if raw_value.rstrip("\r\n").isprintable() and not raw_value.isprintable():
        raise ValueError("it ends with a line end: remove that")
    if not raw_value.isprintable():
        raise ValueError("printable characters are expected")
    return raw_value
