"""Raw options of the four Kafka clients on the path of a record, and of Spark
(`schema.OPTION_TABLES`): their names in files and variables, their values, and which of them are
passed through.

They are passed through unchanged, and override what reo would set. But an exact copy depends on
some of them: those are in `guarded_options.GUARDED`, each with the reason and with the values that
are harmless. Any other value is refused, unless `allow_unsafe_options` is set: then it is passed,
and every process logs that. A value that cannot work at all is always refused. Options of Spark's
Kafka source and sink are known here by name; all others go to Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from common.settings.guarded_options import GUARDED, SPARK_OPTIONS_TABLE, Guard
from common.settings.refusal import Refusal
from common.settings.schema import OPTION_TABLES

ALLOW_UNSAFE = "allow_unsafe_options"
NO_PROMISE = "reo does not promise an exact copy"
SECRET = re.compile(
    r"(?i)secret|password|passphrase|token|jaas|credential|private|key\b|pem\b|sasl[.]oauthbearer[.]config"
    r"|user[.]info"
)
"""Names of options whose values are never shown."""
SECRET_VALUE = re.compile(r"(?i)://[^/\s]*:[^/\s]*@|(password|secret|token)\w*\s*=")
"""Those of other options: the address of a database, its libpq form, JAAS."""
SHOWN = "(secret)"
"""In place of a secret."""
NAME = re.compile(r"[a-z][a-z0-9]*([._][a-z0-9]+)*")
"""Kafka's option names; no other name can be a variable in capitals."""
SPARK_NAME = re.compile(r"spark(\.[A-Za-z0-9_/-]+)+")
_OTHERS = {"kafkaconsumer.polltimeoutms", "fetchoffset.numretries", "fetchoffset.retryintervalms"}
SPARK_OPTIONS = frozenset(
    {"topic", "checkpointlocation"}
    | _OTHERS
    | {option for option in GUARDED["source.consumer_options"] if "." not in option}
)
"""Options of Spark's Kafka source and sink themselves, which are not case-sensitive."""


def get_guards(table: str) -> Mapping[str, Guard]:
    """The guarded options of a table; a candidate's are the source's."""
    return GUARDED.get(table, GUARDED["source.consumer_options"])


def get_variable(setting: str, option: str) -> str:
    """The environment variable of one option. As with Confluent's images, a dot is `_`, and `_` is
    `__`; in capitals, except Spark's options.
    """
    words = option.replace("_", "__").replace(".", "_")
    prefix = get_variable_prefix(setting)
    return prefix + (words if setting == SPARK_OPTIONS_TABLE else words.upper())


def get_variable_prefix(setting: str) -> str:
    """The prefix of the variables of a table."""
    return f"REO_{setting.upper().replace('.', '_')}_"


def parse_variable(name: str) -> tuple[str, str] | None:
    """The table and the option that an environment variable sets, or None."""
    for setting in OPTION_TABLES:
        words = name.removeprefix(get_variable_prefix(setting))
        if words not in {"", name}:
            words = words if setting == SPARK_OPTIONS_TABLE else words.lower()
            return setting, "_".join(word.replace("_", ".") for word in words.split("__"))
    return None


def split_name(name: str) -> tuple[str, str] | None:
    """The table and the option of a dotted name, or None."""
    for table in OPTION_TABLES:
        if name.startswith(f"{table}."):
            return table, name.removeprefix(f"{table}.")
    return None


def to_text(value: object) -> str:
    """An option's value for the clients. No message repeats it: it may be a secret."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        # what is wrong with a setting is a ValueError
        raise ValueError("a text, a number, true or false is expected: put it in quotes")  # noqa: TRY004
    # PEM is several lines
    if not all(character.isprintable() or character in "\t\n\r" for character in str(value)):
        raise ValueError("printable characters are expected")
    return str(value)


def find_refusals(table: str, options: Mapping[str, str], allow_unsafe: bool) -> Iterator[Refusal]:
    """Each option that is not passed through, with the reason."""
    for option, value in options.items():
        name, guard = f"{table}.{option}", get_guards(table).get(option)
        if table == SPARK_OPTIONS_TABLE and not SPARK_NAME.fullmatch(option):
            yield Refusal(
                "{}: {option!r} is not the name of an option of Spark's, which begins with spark."
                " and keeps its upper and lower case",
                table,
                option=option,
            )
        elif table != SPARK_OPTIONS_TABLE and not NAME.fullmatch(option):
            yield Refusal("{}: {option!r} is not the name of an option", table, option=option)
        elif option.startswith("kafka."):
            yield Refusal(
                "{}: options of Kafka's client are given without `kafka.` before them", name
            )
        elif guard and not guard.is_allowed(value) and (guard.always or not allow_unsafe):
            switch = f". {{{ALLOW_UNSAFE}}}=true passes it, and then {NO_PROMISE}"
            reason = guard.text if guard.always else guard.text + switch
            yield Refusal(
                f"{{}} is not passed through{{allowed}}: {reason}",
                name,
                allowed=guard.harmless and f" ({guard.harmless.replace('|', ', ')} are allowed)",
            )


def list_unsafe_options(setting: str, options: Mapping[str, str]) -> Iterator[str]:
    """A log line for each option that only `allow_unsafe_options` lets pass."""
    for option, value in options.items():
        guard = get_guards(setting).get(option)
        if guard and not guard.is_allowed(value):
            yield (
                f"UNSAFE: {setting} sets {option}, which reo refuses without {ALLOW_UNSAFE}:"
                f" {guard.reason}. {NO_PROMISE}"
            )


def to_spark_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options in Spark's form."""
    return {
        option if option in SPARK_OPTIONS else f"kafka.{option}": value
        for option, value in options.items()
    }


def is_secret(option: str, value: object) -> bool:
    """Whether the value must not be shown."""
    return bool(SECRET.search(option) or SECRET_VALUE.search(str(value)))


def redact(option: str, value: Any) -> Any:
    """A value for display, without secrets; also a table of options, or a list."""
    if isinstance(value, Mapping):
        return {name: redact(name, inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [redact(option, inner) for inner in value]
    return SHOWN if is_secret(option, value) else value
