"""Where values come from: files, the environment, kafka-topic-mirror's variables, the command line;
a later one wins. `common.settings.conversion` converts them.

Variables are read as plain text: dynaconf would parse them as TOML, where topic `2024` is a number
and `1_000` is 1000.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from common import failpoints
from common.settings import client_options, foreign_variables, settings_file
from common.settings.guarded_options import SPARK_OPTIONS_TABLE
from common.settings.refusal import Origin
from common.settings.schema import BY_ENVIRONMENT, BY_NAME, OPTION_TABLES, SECRETS
from common.suggestions import suggest

FILE_VARIABLE = "REO_SETTINGS_FILE"
"""Names the settings files, separated by `:`; a later file wins over an earlier one."""
REO_VARIABLE = re.compile(r"(REO|KAFKA_CLUSTERS|KAFKA_CONFIG)_")
KUBERNETES_VARIABLE = re.compile(
    r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|PORT_\d+_(TCP|UDP)(_\w+)?)"
)
KUBERNETES_ADDRESS = "tcp://"
"""What Kubernetes' REO_METRICS_PORT says, for a Service that is called reo-metrics."""
NOT_SETTINGS = frozenset({FILE_VARIABLE, "REO_JARS", *failpoints.VARIABLES})
"""Variables with our prefix that are no settings; REO_JARS is Spark's jars in the image."""
OPTIONS_OF_ARGUMENTS = {"stop_at_end": "--stop-at-end", "source.mode": "--mode"}
"""Other settings from the command line are topics, from `--topic`."""
TABLES = {name[: dot.start()] for name in BY_NAME for dot in re.finditer("[.]", name)}
"""The tables that a file can have, beside those of raw options."""
CASE_SENSITIVE = re.compile(rf"(?i)topics\.|{re.escape(SPARK_OPTIONS_TABLE)}\.")
"""Behind it stand names of topics and of Spark's options, which keep their case."""
SUCCESSORS = {
    "destination.postgresql": (
        ": it is destination.class=deduplicator.postgresql:PostgresqlStore now, with"
        " destination.connection and destination.options (docs/how-to/postgresql.md)"
    )
}
"""What is said of settings of earlier versions, by what their names begin with."""
File = str | Mapping[str, Any]
"""The path of a settings file, or what would be in it."""
GIVEN = "the given settings"
"""What messages call the latter."""
DEPTH_MAX = 12
"""`ssl.keystore.certificate.chain` is four tables deep in TOML. A YAML table that refers to itself
exceeds any depth.
"""


class Given(NamedTuple):
    """A value as the user gave it."""

    value: Any
    origin: Origin


@dataclass
class Sources:
    """What all sources say, by dotted name, also of each option."""

    values: dict[str, Given] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    """By the setting, or else by the file or the variable that is wrong."""
    has_unreadable_file: bool = False
    """Then what is missing or contradicts itself is unknown."""
    topics: dict[str, Any] = field(default_factory=dict)
    """The tables `[topics]` of all files: source topic or pattern → destination."""


def read_all(
    environment: Mapping[str, str], files: Sequence[File], arguments: Mapping[str, str]
) -> Sources:
    """Read the values of all sources. Without `files`, the files that the environment names."""
    sources = Sources()
    for file in files or filter(None, environment.get(FILE_VARIABLE, "").split(os.pathsep)):
        if not isinstance(file, str):
            _add_file(GIVEN, file, sources)
            continue
        try:
            tree = settings_file.read_file(file)
        except ValueError as reason:
            sources.has_unreadable_file = True
            sources.errors[file] = f"{file}: {reason}"
        else:
            _add_file(file, tree, sources)
    sources.values |= _read_environment(environment, sources.errors)
    _add_topic_mirrors(environment, sources)
    for name, text in arguments.items():
        sources.values[name] = Given(text, Origin(OPTIONS_OF_ARGUMENTS.get(name, "--topic")))
    return sources


def _add_file(file: str, tree: Mapping[str, Any], sources: Sources) -> None:
    for name, value in _flatten(tree):
        if name in BY_NAME or client_options.split_name(name):
            sources.values[name] = Given(value, Origin(name, file))
        elif name.startswith("topics."):
            sources.topics[name.removeprefix("topics.")] = value
            rules = [
                f"{source}={target}" if isinstance(target, str) else target
                for source, target in sources.topics.items()
            ]
            sources.values["topics"] = Given(rules, Origin("[topics]", file))
        else:
            # behind a space: a value, where `=` is forgotten in INI, and a password ends with one
            where = f"{file}: unknown setting {name.partition(' ')[0]}"
            sources.errors[where] = f"{where}{_find_successor(name) or suggest(name, BY_NAME)}"


def _flatten(
    tree: Mapping[str, Any], prefix: str = "", depth: int = 1
) -> Iterator[tuple[str, Any]]:
    """Dotted names and their values. TOML reads `client.rack` as a table `client`."""
    for key, value in tree.items():
        name = f"{prefix}{key}"
        kept = CASE_SENSITIVE.match(name)
        end = kept.end() if kept else len(name)
        name = name[:end].lower() + name[end:]
        is_table = name in TABLES or name in OPTION_TABLES or client_options.split_name(name)
        if isinstance(value, Mapping) and (depth == 1 or (is_table and depth < DEPTH_MAX)):
            yield from _flatten(value, f"{name}.", depth + 1)
        else:
            yield name, value


def _read_environment(environment: Mapping[str, str], errors: dict[str, str]) -> dict[str, Given]:
    values: dict[str, Given] = {}
    for variable, text in environment.items():
        is_kubernetes = KUBERNETES_VARIABLE.fullmatch(variable)
        if is_kubernetes and text.startswith(KUBERNETES_ADDRESS):
            continue
        option = client_options.parse_variable(variable)
        setting = SECRETS.get(variable) or BY_ENVIRONMENT.get(variable)
        name = ".".join(option) if option else setting.name if setting else ""
        if name:
            given = Given(
                _read_secret(variable, text, errors) if variable in SECRETS else text,
                Origin(variable),
            )
            if values.setdefault(name, given).value != given.value:
                errors[name] = (
                    f"{variable} and {values[name].origin} name the same setting and contradict"
                    " each other"
                )
        elif REO_VARIABLE.match(variable) and variable not in NOT_SETTINGS and not is_kubernetes:
            name = variable.removeprefix("REO_").lower().replace("_", ".", 1)
            hint = _find_successor(name) or suggest(variable, BY_ENVIRONMENT)
            errors[variable] = f"{variable}: unknown setting{hint}"
    return values


def _find_successor(name: str) -> str:
    """What stands in the place of a setting that is gone; empty for others."""
    return next((hint for gone, hint in SUCCESSORS.items() if name.startswith(gone)), "")


def _read_secret(variable: str, file: str, errors: dict[str, str]) -> str:
    """The content of the file, without the final newline, which editors and `echo` add."""
    try:
        return Path(file).read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError) as failed:
        reason = failed.strerror if isinstance(failed, OSError) else "not text"
        errors[SECRETS[variable].name] = f"{variable}: {file} cannot be read: {reason}"
        return ""


def _add_topic_mirrors(environment: Mapping[str, str], sources: Sources) -> None:
    """kafka-topic-mirror's variables may repeat another source's value, never override."""
    for variable, name, text in foreign_variables.translate_variables(environment, sources.errors):
        value, origin = sources.values.setdefault(name, Given(text, Origin(variable)))
        if (",".join(map(str, value)) if isinstance(value, list) else str(value)) != text:
            sources.errors[name] = (
                f"{variable} and {origin} name the same setting and contradict each other: remove"
                " one. (Names without a prefix are kafka-topic-mirror's when"
                f" {' and '.join(foreign_variables.REQUIRED_VARIABLES)} are both set)"
            )
