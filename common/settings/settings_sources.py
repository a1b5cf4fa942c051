"""The sources of settings: files, the environment, kafka-topic-mirror's variables, the command
line. Each value keeps the name under which the user set it. `common.settings.conversion` converts
the values.

An error is a line in `errors`, and its setting is in `invalid`, so that consequences of the error
are not reported too: when the file of a secret does not exist, nothing says that the secret is
missing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from common import failpoints
from common.settings import client_options, kafka_topic_mirror_variables, settings_file
from common.settings.declaration import Setting
from common.settings.setting_index import BY_ENVIRONMENT, BY_NAME, SECRETS
from common.settings.source_candidate_settings import CANDIDATE_TABLE
from common.suggestions import suggest

FILE_VARIABLE = "REO_SETTINGS_FILE"
"""Names the settings files, separated by `:`; a later file wins over an earlier one."""
REO_VARIABLE = re.compile(r"(REO|KAFKA_CLUSTERS|KAFKA_CONFIG)_")
KUBERNETES_VARIABLE = re.compile(
    r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|PORT_\d+_(TCP|UDP)(_\w+)?)"
)
KUBERNETES_ADDRESS = "tcp://"
"""What such a variable says where it also is a setting: REO_METRICS_PORT, of a Service that is
called reo-metrics.
"""
NOT_SETTINGS = frozenset({FILE_VARIABLE, "REO_JARS", *failpoints.VARIABLES})
"""Variables with our prefix that are not settings: the settings file, the folder of Spark's jars in
the image, the failpoints.
"""
OPTIONS_OF_ARGUMENTS = {"stop_at_end": "--stop-at-end", "source.mode": "--mode"}
"""Other settings from the command line are topics, from `--topic`."""


class RawSetting(NamedTuple):
    """A value as the user set it."""

    where: str
    """A variable, a file and a name in it, or an option of the command line."""
    value: Any
    in_file: bool = False


@dataclass
class RawSettings:
    """All values by dotted name, also of options; later sources replace earlier ones."""

    values: dict[str, RawSetting] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    invalid: set[str] = field(default_factory=set)
    files: Sequence[str] = ()
    topics: dict[str, Any] = field(default_factory=dict)
    """The tables `[topics]` of all files: source topic or pattern → destination."""
    unreadable_file: bool = False
    """Whether a file could not be read; then missing and contradictory settings are not
    reported.
    """

    def spell_missing(self, setting: Setting) -> str:
        """What a user of these sources would write: a name in a file, or a variable."""
        return setting.name if self.files else " or ".join(setting.environment)

    def fail(self, name: str, error: str) -> None:
        """Report an error of this setting."""
        self.invalid.add(name)
        self.errors.append(error)


def read_all(
    environment: Mapping[str, str], files: Sequence[str], arguments: Mapping[str, str]
) -> RawSettings:
    """Read the values of all sources. Without `files`, the files that the environment names."""
    files = files or list(filter(None, environment.get(FILE_VARIABLE, "").split(os.pathsep)))
    raw = RawSettings(files=files)
    for file in files:
        _read_file(file, raw)
    raw.values |= _read_environment(environment, raw)
    _read_topic_mirror_variables(environment, raw)
    for name, text in arguments.items():
        raw.values[name] = RawSetting(OPTIONS_OF_ARGUMENTS.get(name, "--topic"), text)
    return raw


def _read_file(file: str, raw: RawSettings) -> None:
    try:
        file_values = settings_file.read_file(file)
    except ValueError as reason:
        raw.unreadable_file = True
        raw.errors.append(f"{file}: {reason}")
        return
    for name, value in _expand_candidates(file_values):
        table = (
            name
            if name in client_options.OPTION_TABLES
            else next(
                (table for table in client_options.OPTION_TABLES if name.startswith(f"{table}.")),
                "",
            )
        )
        if table:
            _read_options(
                file,
                table,
                {name.removeprefix(f"{table}."): value} if name != table else value,
                raw,
            )
        elif name in BY_NAME:
            raw.values[name] = RawSetting(f"{file}: {name}", value, in_file=True)
        elif name.startswith(settings_file.TOPICS):
            raw.topics[name.removeprefix(settings_file.TOPICS)] = value
            raw.values["topics"] = RawSetting(
                f"{file}: [topics]",
                [
                    f"{source}={target}" if isinstance(target, str) else target
                    for source, target in raw.topics.items()
                ],
                in_file=True,
            )
        else:
            raw.errors.append(f"{file}: unknown setting {name}{suggest(name, BY_NAME)}")


def _expand_candidates(file_values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Flatten the tables of candidates, which are one level deeper than the others."""
    for name, value in file_values.items():
        if CANDIDATE_TABLE.fullmatch(name) and isinstance(value, Mapping):
            yield from ((f"{name}.{str(key).lower()}", inner) for key, inner in value.items())
        else:
            yield name, value


def _read_options(file: str, table: str, options: object, raw: RawSettings) -> None:
    """Each option has its own name, so that the environment can override one of them."""
    try:
        for option, value in client_options.flatten(options):
            raw.values[f"{table}.{option}"] = RawSetting(
                f"{file}: {table}.{option}", value, in_file=True
            )
    except ValueError as reason:
        raw.errors.append(f"{file}: {table}: {reason}")


def _read_environment(environment: Mapping[str, str], raw: RawSettings) -> dict[str, RawSetting]:
    values: dict[str, RawSetting] = {}
    for variable, text in environment.items():
        if KUBERNETES_VARIABLE.fullmatch(variable) and text.startswith(KUBERNETES_ADDRESS):
            continue
        setting = BY_ENVIRONMENT.get(variable)
        if variable in SECRETS:
            setting, text = SECRETS[variable], _read_secret(variable, text, raw)  # noqa: PLW2901
        option = client_options.parse_variable(variable)
        if option is not None:
            values[".".join(option)] = RawSetting(variable, text)
        elif setting is None:
            if (
                REO_VARIABLE.match(variable)
                and variable not in NOT_SETTINGS
                and not KUBERNETES_VARIABLE.fullmatch(variable)
            ):
                raw.errors.append(f"{variable}: unknown setting{suggest(variable, BY_ENVIRONMENT)}")
        elif setting.name in values and values[setting.name].value != text:
            raw.fail(
                setting.name,
                f"{variable} and {values[setting.name].where} name the same setting and contradict"
                " each other",
            )
        else:
            values[setting.name] = RawSetting(variable, text)
    return values


def _read_topic_mirror_variables(environment: Mapping[str, str], raw: RawSettings) -> None:
    """Add kafka-topic-mirror's variables: they can repeat a value from another source, and never
    override it.
    """
    for variable, name, text in kafka_topic_mirror_variables.translate_variables(
        environment, raw.errors
    ):
        where, value, _ = raw.values.setdefault(name, RawSetting(variable, text))
        if (",".join(map(str, value)) if isinstance(value, list) else str(value)) != text:
            raw.fail(
                name,
                f"{variable} and {where} name the same setting and contradict each other: remove"
                " one. (Names without a prefix are kafka-topic-mirror's when"
                f" {' and '.join(kafka_topic_mirror_variables.REQUIRED_VARIABLES)} are both set)",
            )


def _read_secret(variable: str, file: str, raw: RawSettings) -> str:
    """The content of the file, without the final newline, which editors and `echo` add."""
    try:
        return Path(file).read_text().removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError) as failed:
        reason = failed.strerror if isinstance(failed, OSError) else "not text"
        raw.fail(SECRETS[variable].name, f"{variable}: {file} cannot be read: {reason}")
        return ""
