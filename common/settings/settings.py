"""The settings of one process: the checked values, and what follows from them."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from dataclasses import fields

from common import topic_rules
from common.errors import SettingsInvalid
from common.routes import Route
from common.settings import client_options
from common.settings import start_position as start_at
from common.settings.clusters import Cluster, split_clusters
from common.settings.root_section import Schema
from common.settings.security import Security
from common.settings.setting_index import BY_NAME, SETTINGS, build_sections
from common.settings.source_candidate_settings import CANDIDATES_MAX, build_candidate_setting_name

OPTIONS = "source.consumer_options"
Value = str | int | bool | dict[str, str] | None
"""Of one setting, after its conversion."""


class Settings(Schema):
    """The checked values, as `common.settings.root_section` declares them, and what follows from
    them.
    """

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
        clusters = split_clusters(self.source.bootstrap_servers)
        self.sources = tuple(
            Cluster(
                "source",
                servers,
                self.source.security.override(self.list_own_settings(number)),
                number,
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

    def list_own_settings(self, number: int) -> dict[str, str]:
        """The TLS and SASL settings of one source candidate alone, by the last part of their names;
        empty ones are not set.
        """
        return (
            {
                field.name: str(self.values[build_candidate_setting_name(number, field.name)])
                for field in fields(Security)
            }
            if number <= CANDIDATES_MAX
            else {}
        )

    def select_source(self, source: Cluster) -> Settings:
        """The same settings with one of the `sources` as the only one: what is its own alone is
        what all have.
        """
        own_options = (
            self.get_options(build_candidate_setting_name(source.number, OPTIONS))
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

    def build_routes(self, topics: Iterable[str] = ()) -> list[Route]:
        """The routes, when the source has these topics; SettingsInvalid when they cannot be copied
        side by side.
        """
        selected = topic_rules.build_routes(self.rules, topics, self.intermediate.topic)
        conflicts = list(topic_rules.find_conflicts(self.rules, selected))
        if conflicts:
            raise SettingsInvalid(
                "\n  ".join(
                    [
                        (
                            f"with the topics that are at the source, {len(conflicts)} route(s) are"
                            " wrong:"
                        ),
                        *conflicts,
                    ]
                )
            )
        return selected

    def get_options(self, name: str) -> dict[str, str]:
        """The raw options of one of the tables in `client_options.OPTION_TABLES`."""
        value = self.values[name]
        assert isinstance(value, dict)
        return value

    def list_warnings(self) -> list[str]:
        """What the start says of the settings."""
        return [*self.not_taken, *self.list_unsafe()]

    def list_unsafe(self) -> list[str]:
        """The warnings that every process logs."""
        return [
            line
            for name in client_options.OPTION_TABLES
            for line in client_options.list_unsafe_options(name, self.get_options(name))
        ]

    def build_environment(self) -> dict[str, str]:
        """The environment variables that give a child process exactly these settings."""
        options = {
            client_options.get_variable(name, option): value
            for name in client_options.OPTION_TABLES
            for option, value in self.get_options(name).items()
        }
        return options | {
            BY_NAME[name].environment[0]: str(value)
            for name, value in self.values.items()
            if BY_NAME[name].environment and value not in ("", None)
        }
