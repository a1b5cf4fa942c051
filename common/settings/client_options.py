"""Raw options of the four Kafka clients on the path of a record, and of Spark: their names in files
and variables, their values, and which of them are passed through.

- `source.consumer_options`: stage one reads the source; Kafka's Java consumer's, or Spark's Kafka
  source's
- `intermediate.producer_options`: stage one writes the intermediate topic; Kafka's Java producer's
- `intermediate.consumer_options`: stage two reads the intermediate topic; librdkafka's
- `destination.producer_options`: stage two writes the destination; librdkafka's
- `replicator.spark_options`: no client's, stage one's Spark's (`common.settings.spark_options`)

They are passed through unchanged, and override what reo would set. But an exact copy depends on
some of them: those are in `guarded_options.GUARDED`, each with the reason and with the values that
are harmless. Any other value is refused, unless `allow_unsafe_options` is set: then it is passed,
and every process logs that. A value that cannot work at all is always refused. Options of Spark
itself are known here by name; all others go to Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from common.settings import spark_options
from common.settings.guarded_options import GUARDED
from common.settings.option_guard import Guard
from common.settings.source_candidate_settings import CANDIDATES_MAX, build_candidate_setting_name

ALLOW_UNSAFE = "allow_unsafe_options"
SECRET = re.compile(
    r"(?i)secret|password|passphrase|token|jaas|credential|private|key\b|pem\b|sasl[.]oauthbearer[.]config"
)
"""Names of options whose values are never shown."""
NAME = re.compile(r"[a-z][a-z0-9]*([._][a-z0-9]+)*")
"""The form of Kafka's option names. Other names cannot be written as an environment variable in
capitals.
"""
DEPTH_MAX = 12
"""`ssl.keystore.certificate.chain` is four tables deep in TOML. A YAML table that refers to itself
exceeds any depth.
"""
CANDIDATE_TABLES = tuple(
    build_candidate_setting_name(number, "source.consumer_options")
    for number in range(1, CANDIDATES_MAX + 1)
)
OPTION_TABLES = (*GUARDED, *CANDIDATE_TABLES)
"""Every table of raw options."""
SPARK_OPTIONS = frozenset(
    {
        "failondataloss",
        "includeheaders",
        "assign",
        "subscribe",
        "subscribepattern",
        "startingoffsets",
        "startingtimestamp",
        "startingoffsetsbytimestamp",
        "startingoffsetsbytimestampstrategy",
        "endingoffsets",
        "endingtimestamp",
        "endingoffsetsbytimestamp",
        "minpartitions",
        "maxrecordsperpartition",
        "maxoffsetspertrigger",
        "minoffsetspertrigger",
        "maxtriggerdelay",
        "groupidprefix",
        "kafkaconsumer.polltimeoutms",
        "fetchoffset.numretries",
        "fetchoffset.retryintervalms",
        "topic",
        "checkpointlocation",
    }
)
"""Options of Spark's Kafka source and sink themselves, which are not case-sensitive."""


def get_guards(table: str) -> Mapping[str, Guard]:
    """The guarded options of a table."""
    return GUARDED["source.consumer_options" if table in CANDIDATE_TABLES else table]


def get_variable(setting: str, option: str) -> str:
    """The environment variable of one option. As with Confluent's images, a dot is `_`, and `_` is
    `__`; in capitals, except Spark's options.
    """
    words = option.replace("_", "__").replace(".", "_")
    prefix = get_variable_prefix(setting)
    return prefix + (words if setting == spark_options.SETTING else words.upper())


def get_variable_prefix(setting: str) -> str:
    """The prefix of the variables of a table."""
    return f"REO_{setting.upper().replace('.', '_')}_"


def parse_variable(name: str) -> tuple[str, str] | None:
    """The table and the option that an environment variable sets, or None."""
    for setting in OPTION_TABLES:
        if name.startswith(get_variable_prefix(setting)) and name != get_variable_prefix(setting):
            words = name.removeprefix(get_variable_prefix(setting))
            words = words if setting == spark_options.SETTING else words.lower()
            return setting, "_".join(word.replace("_", ".") for word in words.split("__"))
    return None


def flatten(table: object, prefix: str = "", depth: int = 1) -> Iterator[tuple[str, Any]]:
    """Dotted names and values of a table in a settings file: TOML reads `client.rack` as a table
    `client`. ValueError when it is no table of options.
    """
    if not isinstance(table, Mapping) or depth > DEPTH_MAX:
        raise ValueError(
            "a table of options is expected, each with a text, a number, true or false"
        )
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.", depth + 1)
        else:
            name = f"{prefix}{key}"
            yield name.lower() if name.lower() in SPARK_OPTIONS else name, value


def to_text(value: object) -> str:
    """An option's value as the clients expect it. No message repeats the value: it may be a
    secret.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        # what is wrong with a setting is a ValueError
        raise ValueError("a text, a number, true or false is expected: put it in quotes")  # noqa: TRY004
    # PEM is several lines
    if not all(character.isprintable() or character in "\t\n\r" for character in str(value)):
        raise ValueError("printable characters are expected")
    return str(value)


def find_errors(setting: str, options: Mapping[str, str], allow_unsafe: bool) -> Iterator[str]:
    """One message for each option that is not passed through, with the reason."""
    for option, value in options.items():
        guard = get_guards(setting).get(option)
        if setting == spark_options.SETTING and not spark_options.NAME.fullmatch(option):
            yield (
                f"{setting}: {option!r} is not the name of an option of Spark's, which begins with"
                " spark. and keeps its upper and lower case"
            )
        elif setting != spark_options.SETTING and not NAME.fullmatch(option):
            yield f"{setting}: {option!r} is not the name of an option"
        elif option.startswith("kafka."):
            yield (
                f"{setting}.{option}: options of Kafka's client are given without `kafka.` before"
                " them"
            )
        elif guard and not guard.is_allowed(value) and (guard.always or not allow_unsafe):
            allowed = (
                f" ({guard.harmless.replace('|', ', ')} are allowed)" if guard.harmless else ""
            )
            switch = (
                ""
                if guard.always
                else f". {ALLOW_UNSAFE}=true passes it, and then reo does not promise an exact copy"
            )
            yield f"{setting}.{option} is not passed through{allowed}: {guard.reason}{switch}"


def list_unsafe_options(setting: str, options: Mapping[str, str]) -> Iterator[str]:
    """A log line for each option that is passed through only because `allow_unsafe_options` is
    set.
    """
    for option, value in options.items():
        guard = get_guards(setting).get(option)
        if guard and not guard.is_allowed(value):
            yield (
                f"UNSAFE: {setting} sets {option}, which reo refuses without {ALLOW_UNSAFE}:"
                f" {guard.reason}. reo does not promise an exact copy"
            )


def to_spark_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options in Spark's form."""
    return {
        option if option in SPARK_OPTIONS else f"kafka.{option}": value
        for option, value in options.items()
    }


def redact(option: str, value: str) -> str:
    """A value for display, without secrets."""
    return "(secret)" if SECRET.search(option) else value
