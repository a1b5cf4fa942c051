"""One setting: from the given text, or the value of a settings file, to a value of its kind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

from common.settings import start_position
from common.settings.declaration import Setting
from common.settings.settings import Value

FLAGS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def convert(setting: Setting, given: Any) -> Value:
    """The value of a setting; ValueError when the setting cannot have it."""
    if given is None:  # in YAML, a key without a value
        raise ValueError("it has no value: write one, or remove the key")
    if setting.kind == "secret":
        return _check_secret(given)
    if setting.kind == "object":
        return _parse_object(given)
    if setting.kind == "options":
        raise ValueError(
            "a table of options is expected, each with a text, a number, true or false"
        )
    is_free = setting.kind == "text" and not setting.choices
    text = (to_text(given) if is_free else str(given)).strip()
    # a client's configuration and a child's environment take neither NUL nor what is no UTF-8
    if not text.isprintable():
        raise ValueError(f"printable characters are expected, not {text!r}")
    return _parse(setting, text)


def to_text(value: object) -> str:
    """A text, or a list of texts joined by commas; ValueError for another type."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return ",".join(value)
    raise ValueError(
        f"a text is expected, not {str(value)[:40]!r} as the file's format reads it: put it in"
        " quotes"
    )


def _parse(setting: Setting, text: str) -> Value:
    if setting.kind == "start":
        start_position.parse(text)
    elif setting.kind == "flag":
        if text.lower() not in FLAGS:
            raise ValueError(f"true or false is expected, not {text!r}")
        return FLAGS[text.lower()]
    elif setting.kind == "integer":
        least, most = setting.minimum, setting.maximum
        if not re.fullmatch(r"-?[0-9]{1,12}", text) or not least <= int(text) <= most:
            raise ValueError(f"a whole number from {least} to {most} is expected, not {text!r}")
        return int(text)
    elif setting.choices:
        for choice in setting.choices:
            if choice.lower() == text.lower():
                return choice
        known = ", ".join(filter(None, setting.choices))
        raise ValueError(f"one of {known} is expected, not {text!r}")
    elif setting.required and not text:
        raise ValueError("must not be empty")
    return text


def _parse_object(given: Any) -> str:
    """A table of a settings file, or the text of a JSON object, as JSON; empty for an empty one.
    No message repeats it: it may have a secret.
    """
    try:
        value = given if isinstance(given, Mapping) else orjson.loads(str(given) or "{}")
        return orjson.dumps(dict(value.items())).decode() if value else ""
    except (ValueError, TypeError, AttributeError):
        raise ValueError(
            'a JSON object like {"module:function": {"name": "value"}} is expected'
        ) from None


def _check_secret(given: Any) -> str:
    """The secret unchanged, including blanks; error messages do not repeat it."""
    if not isinstance(given, str):
        # what is wrong with a setting is a ValueError
        raise ValueError("a text is expected: put it in quotes")  # noqa: TRY004
    if given.rstrip("\r\n").isprintable() and not given.isprintable():
        raise ValueError("it ends with a line end: remove that")
    if not given.isprintable():
        raise ValueError("printable characters are expected")
    return given
