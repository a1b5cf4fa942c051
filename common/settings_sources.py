"""Where settings come from: files, the environment, kafka-topic-mirror's variables, the command line; each value with the
name under which the user gave it. Nothing is converted here (`common.settings`).

An error is a line in `errors`; the setting that it is about is in `wrong`, so that what follows from the error alone is not
reported as well: of a secret's file that is missing, not that the secret is missing too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from common import client_options, failpoints, settings_file, topic_mirror_variables
from common.candidate_settings import CANDIDATE_TABLE
from common.nearest import suggest
from common.settings_table import BY_ENVIRONMENT, BY_NAME, SECRETS

FILE_VARIABLE = "REO_SETTINGS_FILE"
"""Names the settings files, separated by `:`; a later file wins over an earlier one."""
OURS = re.compile(r"(REO|KAFKA_CLUSTERS|KAFKA_CONFIG)_")
FROM_KUBERNETES = re.compile(r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|PORT_\d+_(TCP|UDP)(_\w+)?)")
NOT_SETTINGS = frozenset({FILE_VARIABLE, "REO_JARS", *failpoints.VARIABLES})
"""Variables with our prefix that are not settings of a copy: the file, where the image keeps Spark's connector, where a test wants a process to die."""
OPTIONS_OF_ARGUMENTS = {"stop_at_end": "--stop-at-end", "source.mode": "--mode"}
"""The command line's other settings are names of topics, from `--topic`."""


class RawSetting(NamedTuple):
    """A value as it was given."""

    where: str
    """A variable, a file and a name in it, or an option of the command line."""
    value: Any
    in_file: bool = False


@dataclass
class RawSettings:
    """All values by dotted name, also of options; later sources replace earlier ones."""

    values: dict[str, RawSetting] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    wrong: set[str] = field(default_factory=set)
    files: Sequence[str] = ()
    topics: dict[str, Any] = field(default_factory=dict)
    """The tables `[topics]` of all files: source topic or pattern → destination."""
    unreadable_file: bool = False
    """Then it is unknown what is missing, and what contradicts what."""

    def fail(self, name: str, error: str) -> None:
        """Report an error of this setting."""
        self.wrong.add(name)
        self.errors.append(error)


def read_all(environment: Mapping[str, str], files: Sequence[str], arguments: Mapping[str, str]) -> RawSettings:
    """The values of all sources; without `files`, those that the environment names."""
    files = files or list(filter(None, environment.get(FILE_VARIABLE, "").split(os.pathsep)))
    raw = RawSettings(files=files)
    for file in files:
        _read_file(file, raw)
    raw.values |= _read_environment(environment, raw)
    _read_mirrors(environment, raw)
    for name, text in arguments.items():
        raw.values[name] = RawSetting(OPTIONS_OF_ARGUMENTS.get(name, "--topic"), text)
    return raw


def _read_file(file: str, raw: RawSettings) -> None:
    try:
        given = settings_file.read_file(file)
    except ValueError as reason:
        raw.unreadable_file = True
        raw.errors.append(f"{file}: {reason}")
        return
    for name, value in _expand_candidates(given):
        table = name if name in client_options.OPTION_TABLES else next((table for table in client_options.OPTION_TABLES if name.startswith(f"{table}.")), "")
        if table:
            _read_options(file, table, {name.removeprefix(f"{table}."): value} if name != table else value, raw)
        elif name in BY_NAME:
            raw.values[name] = RawSetting(f"{file}: {name}", value, in_file=True)
        elif name.startswith(settings_file.TOPICS):
            raw.topics[name.removeprefix(settings_file.TOPICS)] = value
            raw.values["topics"] = RawSetting(f"{file}: [topics]", [f"{source}={target}" if isinstance(target, str) else target
                                                                    for source, target in raw.topics.items()], in_file=True)
        else:
            raw.errors.append(f"{file}: unknown setting {name}{suggest(name, BY_NAME)}")


def _expand_candidates(given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """A candidate's table is one level deeper than the others."""
    for name, value in given.items():
        if CANDIDATE_TABLE.fullmatch(name) and isinstance(value, Mapping):
            yield from ((f"{name}.{str(key).lower()}", inner) for key, inner in value.items())
        else:
            yield name, value


def _read_options(file: str, table: str, given: object, raw: RawSettings) -> None:
    """Each option under a name of its own, so that the environment can replace one and leave the others."""
    try:
        for option, value in client_options.flatten(given):
            raw.values[f"{table}.{option}"] = RawSetting(f"{file}: {table}.{option}", value, in_file=True)
    except ValueError as reason:
        raw.errors.append(f"{file}: {table}: {reason}")


def _read_environment(environment: Mapping[str, str], raw: RawSettings) -> dict[str, RawSetting]:
    found: dict[str, RawSetting] = {}
    for variable, text in environment.items():
        setting = BY_ENVIRONMENT.get(variable)
        if variable in SECRETS:
            setting, text = SECRETS[variable], _read_secret(variable, text, raw)  # noqa: PLW2901
        option = client_options.parse_variable(variable)
        if option is not None:
            found[".".join(option)] = RawSetting(variable, text)
        elif setting is None:
            if OURS.match(variable) and variable not in NOT_SETTINGS and not FROM_KUBERNETES.fullmatch(variable):
                raw.errors.append(f"{variable}: unknown setting{suggest(variable, BY_ENVIRONMENT)}")
        elif setting.name in found and found[setting.name].value != text:
            raw.fail(setting.name, f"{variable} and {found[setting.name].where} name the same setting and contradict each other")
        else:
            found[setting.name] = RawSetting(variable, text)
    return found


def _read_mirrors(environment: Mapping[str, str], raw: RawSettings) -> None:
    """Add kafka-topic-mirror's variables: they may repeat a value that is set otherwise, and never override it."""
    for variable, name, text in topic_mirror_variables.translate_variables(environment, raw.errors):
        where, given, _ = raw.values.setdefault(name, RawSetting(variable, text))
        if (",".join(map(str, given)) if isinstance(given, list) else str(given)) != text:
            raw.fail(name, f"{variable} and {where} name the same setting and contradict each other: take one away. (Names without prefix are "
                           f"kafka-topic-mirror's when {' and '.join(topic_mirror_variables.REQUIRED_VARIABLES)} are both set)")


def _read_secret(variable: str, file: str, raw: RawSettings) -> str:
    """The content of the file, without the last line end, which editors and `echo` add."""
    try:
        return Path(file).read_text().removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError) as failed:
        reason = failed.strerror if isinstance(failed, OSError) else "not text"
        raw.fail(SECRETS[variable].name, f"{variable}: {file} cannot be read: {reason}")
        return ""
