"""Settings: read, checked as a whole, and frozen, before any client is made.

Sources, the later one wins: defaults, the settings file (`REO_SETTINGS_FILE` or `--settings`; see
`common.settings_file`), the environment, the command line. Variables are read as plain text and converted by the kind that
`common.settings_table` declares: dynaconf would parse them as TOML, where topic `2024` is a number and `1_000` is 1000.

Names are checked too, because a mistyped setting that is silently ignored is a wrong copy: every unknown name in the file and
every unknown `REO_…`, `KAFKA_CLUSTERS_…` or `KAFKA_CONFIG_…` variable is an error. Variables that Kubernetes injects for a
Service (`REO_PORT`, `KAFKA_CLUSTERS_SERVICE_HOST` …) are not ours and pass.

A secret may be given by the name of a file that has it (`…_FILE`), never on the command line, and no message repeats it.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from common import client_options, filters, migration, mirror_names, points, rules, settings_file, source_clusters, spark_options, start_at, tables
from common.errors import SettingsInvalid
from common.routes import Route
from common.security import Security
from common.settings_table import BY_ENVIRONMENT, BY_NAME, SECRETS, SETTINGS, Setting
from common.source_clusters import Cluster

FILE_VARIABLE = "REO_SETTINGS_FILE"
OURS = re.compile(r"(REO|KAFKA_CLUSTERS|KAFKA_CONFIG)_")
FROM_KUBERNETES = re.compile(r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|PORT_\d+_(TCP|UDP)(_\w+)?)")
NOT_SETTINGS = frozenset({FILE_VARIABLE, "REO_JARS", *points.VARIABLES})
"""Variables with our prefix that are not settings of a copy: the file, where the image keeps Spark's connector, where a test wants a process to die."""
ONE_TOPIC = ("source.topic", "destination.topic", "intermediate.topic")
"""The settings of the one-topic form; `topics` is the other."""
FLAGS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
Value = str | int | bool | dict[str, str]


class Settings:
    """The checked values, by attribute for what is used together and by dotted name for the rest."""

    def __init__(self, values: Mapping[str, Value], given_by: Mapping[str, str] | None = None) -> None:
        self.values = dict(values)
        self.given_by = dict(given_by or {})
        """By dotted name, also of an option: the source of the value. Settings with their default are left out."""
        self.sources = tuple(self._cluster("source", servers) for servers in source_clusters.split_clusters(self.text("source.bootstrap_servers")))
        self.source, self.destination = self.sources[0], self._cluster("destination", self.text("destination.bootstrap_servers"))
        self.failover = self.text("source.mode") == "failover"
        self.source_topic = self.text("source.topic")
        self.destination_topic = self.text("destination.topic") or self.source_topic
        self.intermediate_topic = self.text("intermediate.topic") or (f"{self.destination_topic}-proxy" if self.destination_topic else "")
        """These three belong to the one-topic form; `rules` has what is copied."""
        self.rules = rules.parse(self.text("topics")) or (rules.Rule(self.source_topic, self.destination_topic),)
        self.application = self.text("application") or f"reo-{self.destination_topic}"
        self.client_id = self.text("client_id") or self.application
        self.instance = self.text("instance") or socket.gethostname()
        self.start = start_at.parse(self.text("source.start"))
        self.stop_at_end = bool(self.values["stop_at_end"])

    def _cluster(self, side: str, bootstrap_servers: str) -> Cluster:
        security = Security(**{field.name: self.text(f"{side}.{field.name}") for field in fields(Security)})
        return Cluster(side, bootstrap_servers, security)

    def on(self, source: Cluster) -> Settings:
        """The same settings with one of the `sources` as the only one."""
        return Settings(self.values | {"source.bootstrap_servers": source.bootstrap_servers}, self.given_by)

    def routes(self, topics: Iterable[str] = ()) -> list[Route]:
        """The routes, when the source has these topics; SettingsInvalid when they cannot be copied side by side."""
        found = rules.routes(self.rules, topics, self.text("intermediate.topic"))
        clashes = rules.clashes(self.rules, found)
        if clashes:
            raise SettingsInvalid("\n  ".join([f"with the topics that are at the source, {len(clashes)} route(s) are wrong:", *clashes]))
        return found

    def text(self, name: str) -> str:
        """A setting of kind text or secret."""
        return str(self.values[name])

    def number(self, name: str) -> int:
        """A setting of kind integer."""
        value = self.values[name]
        assert isinstance(value, int)
        return value

    def options(self, name: str) -> dict[str, str]:
        """A setting of kind options."""
        value = self.values[name]
        assert isinstance(value, dict)
        return value

    def unsafe(self) -> list[str]:
        """The warnings that every process logs."""
        return [line for name in client_options.GUARDED for line in client_options.unsafe(name, self.options(name))]

    def as_environment(self) -> dict[str, str]:
        """The environment variables that give a child process exactly these settings."""
        options = {client_options.variable(name, option): value for name in client_options.GUARDED for option, value in self.options(name).items()}
        return options | {BY_NAME[name].environment[0]: str(value) for name, value in self.values.items() if BY_NAME[name].environment and value != ""}


def is_ours(variable: str) -> bool:
    """Whether an environment variable sets a setting; a child process gets `Settings.as_environment` instead."""
    return (variable in BY_ENVIRONMENT or variable in SECRETS or variable == FILE_VARIABLE or variable in mirror_names.VARIABLES
            or client_options.of_variable(variable) is not None)


def load(environment: Mapping[str, str], file: str | None = None, arguments: Mapping[str, str] | None = None) -> Settings:
    """Read and check all settings; SettingsInvalid lists every error."""
    wrong: list[str] = []
    raw: dict[str, tuple[str, Any]] = {}
    file = file or environment.get(FILE_VARIABLE)
    if file:
        raw.update(_from_file(file, wrong))
    raw.update(_from_environment(environment, wrong))
    _take_mirrors(environment, raw, wrong)
    for name, text in (arguments or {}).items():
        raw[name] = (f"--{name.replace('_', '-')}", text)
    values = {setting.name: _value(setting, raw, wrong, mirror_names.hint(environment)) for setting in SETTINGS}
    if not values["source.topic"] and not values["topics"]:
        wrong.append(f"{' or '.join(BY_NAME['source.topic'].environment)} is missing{mirror_names.hint(environment)}: what to copy, or REO_TOPICS for several")
    checked = {name: value for name, value in values.items() if value is not None}
    if not wrong:
        wrong.extend(_contradictions(Settings(checked)))
    if wrong:
        raise SettingsInvalid("\n  ".join([f"{len(wrong)} setting(s) are wrong:", *wrong]))
    return Settings(checked, {name: where for name, (where, _) in raw.items()})


def _from_file(file: str, wrong: list[str]) -> dict[str, tuple[str, Any]]:
    try:
        given = settings_file.read(file)
    except ValueError as reason:
        wrong.append(f"{file}: {reason}")
        return {}
    found = {}
    named = []
    for name, value in given.items():
        table = name if name in client_options.GUARDED else next((table for table in client_options.GUARDED if name.startswith(f"{table}.")), "")
        if table:
            found.update(_options_of_file(file, table, {name.removeprefix(f"{table}."): value} if name != table else value, wrong))
        elif name in BY_NAME:
            found[name] = (f"{file}: {name}", value)
        elif name.startswith(settings_file.TOPICS):
            named.append((name.removeprefix(settings_file.TOPICS), value))
        else:
            wrong.append(f"{file}: unknown setting {name}{_nearest(name, BY_NAME)}")
    if named:
        found["topics"] = (f"{file}: [topics]", [f"{source}={value}" if isinstance(value, str) else value for source, value in named])
    return found


def _options_of_file(file: str, table: str, given: object, wrong: list[str]) -> dict[str, tuple[str, Any]]:
    """Each option under a name of its own, so that the environment can replace one and leave the others."""
    try:
        return {f"{table}.{option}": (f"{file}: {table}.{option}", value) for option, value in client_options.flattened(given)}
    except ValueError as reason:
        wrong.append(f"{file}: {table}: {reason}")
        return {}


def _from_environment(environment: Mapping[str, str], wrong: list[str]) -> dict[str, tuple[str, Any]]:
    found: dict[str, tuple[str, Any]] = {}
    for variable, text in environment.items():
        setting = BY_ENVIRONMENT.get(variable)
        if variable in SECRETS:
            setting, text = SECRETS[variable], _secret_of(variable, text, wrong)  # noqa: PLW2901
        option = client_options.of_variable(variable)
        if option is not None:
            found[".".join(option)] = (variable, text)
        elif setting is None:
            if OURS.match(variable) and variable not in NOT_SETTINGS and not FROM_KUBERNETES.fullmatch(variable):
                wrong.append(f"{variable}: unknown setting{_nearest(variable, BY_ENVIRONMENT)}")
        elif setting.name in found and found[setting.name][1] != text:
            wrong.append(f"{variable} and {found[setting.name][0]} name the same setting and contradict each other")
        else:
            found[setting.name] = (variable, text)
    return found


def _take_mirrors(environment: Mapping[str, str], raw: dict[str, tuple[str, Any]], wrong: list[str]) -> None:
    """Add kafka-topic-mirror's variables: they may repeat a value that is set otherwise, and never override it."""
    for variable, name, text in mirror_names.given(environment, wrong):
        where, given = raw.setdefault(name, (variable, text))
        if (",".join(map(str, given)) if isinstance(given, list) else str(given)) != text:
            wrong.append(f"{variable} and {where} name the same setting and contradict each other: take one away. (Names without prefix are "
                         f"kafka-topic-mirror's when {' and '.join(mirror_names.SIGNATURE)} are both set)")


def _secret_of(variable: str, file: str, wrong: list[str]) -> str:
    """The content of the file, without the last line end, which editors and `echo` add."""
    try:
        return Path(file).read_text().removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError) as failed:
        wrong.append(f"{variable}: {file} cannot be read: {failed.strerror if isinstance(failed, OSError) else 'not text'}")
        return ""


def _nearest(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), 1)
    return f" (did you mean {near[0]}?)" if near else ""


def _options(name: str, raw: Mapping[str, tuple[str, Any]], wrong: list[str]) -> dict[str, str]:
    found = {}
    for key, (where, given) in raw.items():
        if key.startswith(f"{name}."):
            try:
                found[key.removeprefix(f"{name}.")] = client_options.text(given)
            except ValueError as reason:
                wrong.append(f"{where}: {reason}")
    return found


def _value(setting: Setting, raw: Mapping[str, tuple[str, Any]], wrong: list[str], hint: str) -> Value | None:
    if setting.kind == "options":
        return _options(setting.name, raw, wrong)
    if setting.name not in raw:
        if setting.required:
            wrong.append(f"{' or '.join(setting.environment)} is missing{hint}: {setting.meaning}")
        return setting.default
    where, given = raw[setting.name]
    try:
        return _convert(setting, given)
    except ValueError as reason:
        wrong.append(f"{where}: {reason}")
        return setting.default


def _convert(setting: Setting, given: Any) -> Value:
    if setting.kind == "secret":
        return _checked_secret(given)
    free = setting.kind == "text" and not setting.choices
    text = (settings_file.text(given) if free else str(given)).strip()
    if not text.isprintable():  # a client's configuration and a child's environment take neither NUL nor what is no UTF-8
        raise ValueError(f"printable characters are expected, not {text!r}")
    if setting.kind == "flag":
        if text.lower() not in FLAGS:
            raise ValueError(f"true or false is expected, not {text!r}")
        return FLAGS[text.lower()]
    if setting.kind == "integer":
        if not re.fullmatch(r"-?[0-9]{1,12}", text) or not setting.least <= int(text) <= setting.most:
            raise ValueError(f"a whole number from {setting.least} to {setting.most} is expected, not {text!r}")
        return int(text)
    if setting.kind == "start":
        start_at.parse(text)
    if setting.choices and text not in setting.choices:
        raise ValueError(f"one of {', '.join(setting.choices)} is expected, not {text!r}")
    if setting.required and not text:
        raise ValueError("must not be empty")
    return text


def _checked_secret(given: Any) -> str:
    """The secret unchanged, including blanks; error messages do not repeat it."""
    if not isinstance(given, str):
        raise ValueError("a text is expected: put it in quotes")  # noqa: TRY004  (what is wrong with a setting is a ValueError)
    if not given.isprintable():
        raise ValueError("printable characters are expected")
    return given


def _contradictions(settings: Settings) -> Iterable[str]:
    yield from _wrong_routes(settings)
    for name in client_options.GUARDED:
        yield from client_options.validation_errors(name, settings.options(name), bool(settings.values[client_options.SWITCH]))
    for cluster in (settings.source, settings.destination):
        yield from cluster.security.validation_errors(cluster.name)
    for cluster in (*settings.sources, settings.destination):
        yield from source_clusters.address_errors(f"{cluster.name}.bootstrap_servers", cluster.bootstrap_servers)
    appends = settings.text("deduplicator.without_frontier") == "append"
    yield from source_clusters.validation_errors([cluster.bootstrap_servers for cluster in settings.sources], settings.failover, settings.rules, appends)
    if settings.number("source.backoff_min_ms") > settings.number("source.backoff_max_ms"):
        yield "source.backoff_min_ms is more than source.backoff_max_ms"
    yield from filters.validation_errors({name: settings.text(name) for name in (*filters.SETTINGS, "filter.on_error")}, settings.failover)
    yield from tables.validation_errors(settings)
    yield from migration.validation_errors(settings)
    yield from spark_options.validation_errors(settings.text("replicator.master"), settings.options(spark_options.SETTING))
    if settings.number("deduplicator.session_timeout_ms") > settings.number("deduplicator.transaction_timeout_ms"):
        yield "deduplicator.session_timeout_ms is longer than deduplicator.transaction_timeout_ms: a successor would wait for nothing"


def _wrong_routes(settings: Settings) -> Iterable[str]:
    """Errors in the names alone; all others need the clusters' answers (`common.topics`)."""
    many = bool(settings.text("topics"))
    given = [name for name in ONE_TOPIC if settings.text(name)]
    if many and given:
        yield f"topics and {', '.join(given)} contradict each other: several topics, or one"
    if many and not settings.text("application"):
        yield "application is missing: with several topics it has no default, and the frontiers of all of them are kept under it"
    if many:
        yield from (f"topics: {reason}" for reason in rules.validation_errors(settings.rules))
        return
    names = dict(zip(ONE_TOPIC, (settings.source_topic, settings.destination_topic, settings.intermediate_topic), strict=True))
    yield from rules.name_errors(names, settings.destination.bootstrap_servers in [cluster.bootstrap_servers for cluster in settings.sources])
