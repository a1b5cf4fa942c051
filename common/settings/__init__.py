"""Settings: read, checked as a whole, and frozen, before any client is made.

Sources, the later one wins: defaults, the settings files (`REO_SETTINGS_FILE` or `--settings`; see
`common.settings.settings_file`), the environment, the command line. Variables are read as plain
text and converted by the type that `common.settings.schema` declares: dynaconf would parse them as
TOML, where topic `2024` is a number and `1_000` is 1000.

All errors are reported at once, each under the name that the user gave
(`common.settings.spelling`), and none that only follows from another one.

Names are checked too, because a mistyped setting that is silently ignored is a wrong copy: every
unknown name in the file and every unknown `REO_…`, `KAFKA_CLUSTERS_…` or `KAFKA_CONFIG_…` variable
is an error. Variables that Kubernetes injects for a Service (`REO_PORT`,
`KAFKA_CLUSTERS_SERVICE_HOST` …) are not ours and pass.

A secret may be given by the name of a file that has it (`…_FILE`), never on the command line, and
no message repeats it.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import orjson

from common import filters, topic_rules
from common.errors import SettingsInvalid
from common.routes import Route
from common.settings import (
    client_options,
    destination_settings,
    settings_file,
    settings_sources,
    source_clusters,
    spark_options,
    sync_settings,
    topic_mirror_variables,
)
from common.settings import start_position as start_at
from common.settings.candidate_settings import CANDIDATES_MAX, candidate_setting_name
from common.settings.fields import Setting
from common.settings.ignored_variables import list_ignored
from common.settings.schema import Schema
from common.settings.security import Security
from common.settings.settings_sources import FILE_VARIABLE, RawSettings
from common.settings.source_clusters import Cluster
from common.settings.spelling import find_names, spell
from common.settings.table import BY_ENVIRONMENT, BY_NAME, SECRETS, SETTINGS, build_sections

ONE_TOPIC = ("source.topic", "destination.topic", "intermediate.topic")
"""The settings of the one-topic form; `topics` is the other."""
OPTIONS = "source.consumer_options"
FLAGS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
Value = str | int | bool | dict[str, str] | None


class Settings(Schema):
    """The checked values, as `common.settings.schema` declares them, and what follows from them."""

    def __init__(
        self,
        values: Mapping[str, Value],
        given_by: Mapping[str, str] | None = None,
        not_taken: Iterable[str] = (),
    ) -> None:
        super().__init__(**build_sections(Schema, values))
        self.values = dict(values)
        """As they were given, by dotted name: for what goes through all of them."""
        self.given_by = dict(given_by or {})
        """By dotted name, also of an option: the source of the value. Settings with their default
        are left out.
        """
        self.not_taken = tuple(not_taken)
        """A message for each variable of another program that is set and has no effect."""
        clusters = source_clusters.split_clusters(self.source.bootstrap_servers)
        self.sources = tuple(
            Cluster(
                "source", servers, self.source.security.with_own(self.own_settings(number)), number
            )
            for number, servers in enumerate(clusters, 1)
        )
        self.source_cluster = self.sources[0]
        self.destination_cluster = Cluster(
            "destination", self.destination.bootstrap_servers, self.destination.security
        )
        self.failover = self.source.mode == "failover"
        self.source_topic = self.source.topic
        self.destination_topic = self.destination.topic or self.source_topic
        self.intermediate_topic = self.intermediate.topic or (
            f"{self.destination_topic}-proxy" if self.destination_topic else ""
        )
        """These three belong to the one-topic form; `rules` has what is copied."""
        self.rules = topic_rules.parse(self.topics_) or (
            topic_rules.Rule(self.source_topic, self.destination_topic),
        )
        self.application = self.application or f"reo-{self.destination_topic}"
        self.client_id = self.client_id or self.application
        self.instance = self.instance or socket.gethostname()
        self.start = start_at.parse(self.source.start)

    def own_settings(self, number: int) -> dict[str, str]:
        """The TLS and SASL settings of one source candidate alone, by the last part of their names;
        empty ones are not set.
        """
        return (
            {
                field.name: str(self.values[candidate_setting_name(number, field.name)])
                for field in fields(Security)
            }
            if number <= CANDIDATES_MAX
            else {}
        )

    def on(self, source: Cluster) -> Settings:
        """The same settings with one of the `sources` as the only one: what is its own alone is
        what all have.
        """
        own_options = (
            self.options(candidate_setting_name(source.number, OPTIONS))
            if source.number <= CANDIDATES_MAX
            else {}
        )
        return Settings(
            self.values
            | {
                setting.name: {} if setting.kind == "options" else ""
                for setting in SETTINGS
                if setting.candidate
            }
            | {
                "source.bootstrap_servers": source.bootstrap_servers,
                OPTIONS: self.source.consumer_options | own_options,
                **{
                    f"source.{field.name}": getattr(source.security, field.name)
                    for field in fields(Security)
                },
            },
            self.given_by,
        )

    def routes(self, topics: Iterable[str] = ()) -> list[Route]:
        """The routes, when the source has these topics; SettingsInvalid when they cannot be copied
        side by side.
        """
        found = topic_rules.routes(self.rules, topics, self.intermediate.topic)
        clashes = topic_rules.clashes(self.rules, found)
        if clashes:
            raise SettingsInvalid(
                "\n  ".join(
                    [
                        (
                            f"with the topics that are at the source, {len(clashes)} route(s) are"
                            " wrong:"
                        ),
                        *clashes,
                    ]
                )
            )
        return found

    def options(self, name: str) -> dict[str, str]:
        """The raw options of one of the tables in `client_options.OPTION_TABLES`."""
        value = self.values[name]
        assert isinstance(value, dict)
        return value

    def list_warnings(self) -> list[str]:
        """What the start says of the settings."""
        return [*self.not_taken, *self.unsafe()]

    def unsafe(self) -> list[str]:
        """The warnings that every process logs."""
        return [
            line
            for name in client_options.OPTION_TABLES
            for line in client_options.list_unsafe_options(name, self.options(name))
        ]

    def as_environment(self) -> dict[str, str]:
        """The environment variables that give a child process exactly these settings."""
        options = {
            client_options.get_variable(name, option): value
            for name in client_options.OPTION_TABLES
            for option, value in self.options(name).items()
        }
        return options | {
            BY_NAME[name].environment[0]: str(value)
            for name, value in self.values.items()
            if BY_NAME[name].environment and value not in ("", None)
        }


def is_ours(variable: str) -> bool:
    """Whether an environment variable sets a setting; a child process gets
    `Settings.as_environment` instead.
    """
    return (
        variable in BY_ENVIRONMENT
        or variable in SECRETS
        or variable == FILE_VARIABLE
        or variable in topic_mirror_variables.VARIABLES
        or client_options.parse_variable(variable) is not None
    )


def load(
    environment: Mapping[str, str],
    files: str | Sequence[str] | None = None,
    arguments: Mapping[str, str] | None = None,
) -> Settings:
    """Read and check all settings; SettingsInvalid lists every error. Of several `files` the later
    ones win, name by name.
    """
    raw = settings_sources.read_all(
        environment, [files] if isinstance(files, str) else files or (), arguments or {}
    )
    values = {
        setting.name: _value(setting, raw, topic_mirror_variables.describe_missing(environment))
        for setting in SETTINGS
    }
    if not values["source.topic"] and not values["topics"] and not raw.unreadable_file:
        raw.fail(
            "source.topic",
            f"{' or '.join(BY_NAME['source.topic'].environment)} is"
            f" missing{topic_mirror_variables.describe_missing(environment)}: what to copy, or"
            " REO_TOPICS for several",
        )
    if not raw.unreadable_file:
        raw.errors.extend(_spell_contradictions(Settings(values), raw))
    if raw.errors:
        raise SettingsInvalid(
            "\n  ".join([f"{len(raw.errors)} setting(s) are wrong:", *raw.errors])
        )
    return Settings(
        values,
        {name: setting.where for name, setting in raw.values.items()},
        list_ignored(environment),
    )


def _spell_contradictions(settings: Settings, raw: RawSettings) -> Iterator[str]:
    """What contradicts itself, but for what only follows from a setting that is wrong by itself."""
    for error in dict.fromkeys(_contradictions(settings, raw.invalid)):
        if raw.invalid.isdisjoint(find_names(error)):
            yield spell(error, raw.values, bool(raw.files))


def _options(name: str, raw: RawSettings) -> dict[str, str]:
    found = {}
    for key, setting in raw.values.items():
        if key.startswith(f"{name}."):
            try:
                found[key.removeprefix(f"{name}.")] = client_options.to_text(setting.value)
            except ValueError as reason:
                raw.errors.append(f"{setting.where}: {reason}")
    return found


def _value(setting: Setting, raw: RawSettings, hint: str) -> Value:
    if setting.kind == "options":
        return _options(setting.name, raw)
    if setting.name not in raw.values:
        if setting.required and not raw.unreadable_file:
            raw.fail(
                setting.name,
                f"{' or '.join(setting.environment)} is missing{hint}: {setting.meaning}",
            )
        return setting.default
    given = raw.values[setting.name]
    try:
        return _convert(setting, given.value)
    except ValueError as reason:
        raw.fail(setting.name, f"{given.where}: {reason}")
        return setting.default


def _convert(setting: Setting, given: Any) -> Value:
    if setting.kind in ("secret", "object"):
        return _checked_secret(given) if setting.kind == "secret" else _json_object(given)
    free = setting.kind == "text" and not setting.choices
    text = (settings_file.to_text(given) if free else str(given)).strip()
    # a client's configuration and a child's environment take neither NUL nor what is no UTF-8
    if not text.isprintable():
        raise ValueError(f"printable characters are expected, not {text!r}")
    if setting.kind == "flag":
        if text.lower() not in FLAGS:
            raise ValueError(f"true or false is expected, not {text!r}")
        return FLAGS[text.lower()]
    if setting.kind == "integer":
        if (
            not re.fullmatch(r"-?[0-9]{1,12}", text)
            or not setting.minimum <= int(text) <= setting.maximum
        ):
            raise ValueError(
                f"a whole number from {setting.minimum} to {setting.maximum} is expected, not"
                f" {text!r}"
            )
        return int(text)
    if setting.kind == "start":
        start_at.parse(text)
    if setting.choices and text not in setting.choices:
        raise ValueError(f"one of {', '.join(setting.choices)} is expected, not {text!r}")
    if setting.required and not text:
        raise ValueError("must not be empty")
    return text


def _json_object(given: Any) -> str:
    """A table of a settings file, or the text of a JSON object, as JSON; empty for an empty one."""
    try:
        value = given if isinstance(given, Mapping) else orjson.loads(str(given) or "{}")
        if not isinstance(value, Mapping):
            raise ValueError("another value")  # noqa: TRY004  (what is wrong with a setting is a ValueError)
        return orjson.dumps(dict(value)).decode() if value else ""
    except (ValueError, TypeError):
        raise ValueError(
            'a JSON object like {"module:function": {"name": "value"}} is expected, not'
            f" {str(given)[:60]!r}"
        ) from None


def _checked_secret(given: Any) -> str:
    """The secret unchanged, including blanks; error messages do not repeat it."""
    if not isinstance(given, str):
        raise ValueError("a text is expected: put it in quotes")  # noqa: TRY004  (what is wrong with a setting is a ValueError)
    if not given.isprintable():
        raise ValueError("printable characters are expected")
    return given


def _contradictions(settings: Settings, wrong: Container[str]) -> Iterator[str]:
    """One message for each, with the settings by their dotted names. What the topics' names
    contradict is unknown when one of them is `wrong`.
    """
    if not any(name in wrong for name in (*ONE_TOPIC, "topics")):
        yield from _wrong_routes(settings)
    for name in client_options.OPTION_TABLES:
        yield from client_options.validation_errors(
            name, settings.options(name), settings.allow_unsafe_options
        )
    for cluster in (*settings.sources, settings.destination_cluster):
        has_own = any(settings.own_settings(cluster.number).values()) if cluster.number else False
        yield from cluster.security.validation_errors(
            candidate_setting_name(cluster.number, "") if has_own else f"{cluster.name}."
        )
    yield from _unused_candidates(settings)
    for cluster in (*settings.sources, settings.destination_cluster):
        yield from source_clusters.address_errors(
            f"{cluster.name}.bootstrap_servers", cluster.bootstrap_servers
        )
    appends = settings.deduplicator.without_frontier == "append"
    yield from source_clusters.validation_errors(
        [cluster.bootstrap_servers for cluster in settings.sources],
        settings.failover,
        settings.rules,
        appends,
    )
    if settings.source.backoff_min_ms > settings.source.backoff_max_ms:
        yield "source.backoff_min_ms is more than source.backoff_max_ms"
    yield from filters.validation_errors(settings)
    yield from destination_settings.validation_errors(settings)
    yield from sync_settings.validation_errors(settings)
    yield from spark_options.validation_errors(
        settings.replicator.master, settings.replicator.spark_options
    )
    if settings.deduplicator.session_timeout_ms > settings.deduplicator.transaction_timeout_ms:
        yield (
            "deduplicator.session_timeout_ms is longer than deduplicator.transaction_timeout_ms: a"
            " successor would wait for nothing"
        )


def _unused_candidates(settings: Settings) -> Iterator[str]:
    """Settings of single candidates where there are no such candidates."""
    for setting in SETTINGS:
        if (
            setting.candidate
            and settings.values[setting.name]
            and (not settings.failover or setting.candidate > len(settings.sources))
        ):
            reason = (
                "source.mode is single"
                if not settings.failover
                else f"source.bootstrap_servers names {len(settings.sources)} clusters"
            )
            yield f"{setting.name} would not be used: {reason}"


def _wrong_routes(settings: Settings) -> Iterator[str]:
    """Errors in the names alone; all others need the clusters' answers (`common.kafka.topics`)."""
    many = bool(settings.topics_)
    given = [name for name in ONE_TOPIC if settings.values[name]]
    if many and given:
        yield f"topics and {', '.join(given)} contradict each other: several topics, or one"
    if many and not settings.values["application"]:
        yield (
            "application is missing: with several topics it has no default, and the frontiers of"
            " all of them are kept under it"
        )
    if many:
        yield from (f"topics: {reason}" for reason in topic_rules.validation_errors(settings.rules))
        return
    names = dict(
        zip(
            ONE_TOPIC,
            (settings.source_topic, settings.destination_topic, settings.intermediate_topic),
            strict=True,
        )
    )
    yield from topic_rules.name_errors(
        names,
        given,
        settings.destination.bootstrap_servers
        in [cluster.bootstrap_servers for cluster in settings.sources],
    )
