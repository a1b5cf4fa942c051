"""The settings of one process: the checked values, and what follows from them."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from itertools import chain
from types import MappingProxyType

from common import topic_rules
from common.routes import Route
from common.settings import client_options, start_position
from common.settings.clusters import Cluster
from common.settings.declaration import Options, build_sections
from common.settings.refusal import Origin, refuse
from common.settings.schema import (
    BY_NAME,
    OPTION_TABLES,
    SETTINGS,
    Schema,
    build_candidate_setting_name,
)
from common.settings.security import Security

OPTIONS = "source.consumer_options"
SECURITY = tuple(field.name for field in fields(Security))
CLUSTER_SEPARATOR = ";"
"""Separates source clusters; commas separate the brokers of one cluster."""
Value = str | int | bool | Options | None
"""Of one setting, after its conversion."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Settings(Schema):
    """The checked values, as `common.settings.schema` declares them, and what follows from them."""

    values: MappingProxyType[str, Value]
    """As they were given, by dotted name: for what goes through all of them."""
    given_by: MappingProxyType[str, Origin]
    """By dotted name, also of an option: where the value comes from. Not of defaults."""
    not_taken: tuple[str, ...]
    """A message for each variable of another program that is set and has no effect."""
    sources: tuple[Cluster, ...]
    source_cluster: Cluster
    """The only source, or the first one."""
    destination_cluster: Cluster
    failover: bool
    source_topic: str
    destination_topic: str
    intermediate_topic: str
    """These three belong to the one-topic form; `rules` has what is copied."""
    rules: tuple[topic_rules.Rule, ...]
    start: start_position.Start
    halted: frozenset[str] = frozenset()
    """Intermediate topics whose routes are left out (`common.route_states`)."""

    @classmethod
    def build(
        cls,
        values: Mapping[str, Value],
        given_by: Mapping[str, Origin] = MappingProxyType({}),
        not_taken: Iterable[str] = (),
    ) -> Settings:
        """The settings with these values, which are one for each of `SETTINGS`."""
        values = {
            name: MappingProxyType(dict(value)) if isinstance(value, Mapping) else value
            for name, value in values.items()
        }
        sections = build_sections(Schema, values)
        source, destination = sections["source"], sections["destination"]
        topic = destination.topic or source.topic
        sections["application"] = sections["application"] or f"reo-{topic}"
        sections["client_id"] = sections["client_id"] or sections["application"]
        sections["instance"] = sections["instance"] or socket.gethostname()
        sources = [
            Cluster(
                "source", servers.strip(), source.security.override(list_own_security(values, n)), n
            )
            for n, servers in enumerate(source.bootstrap_servers.split(CLUSTER_SEPARATOR), 1)
        ]
        return cls(
            **sections,
            values=MappingProxyType(values),
            given_by=MappingProxyType(dict(given_by)),
            not_taken=tuple(not_taken),
            sources=tuple(sources),
            source_cluster=sources[0],
            destination_cluster=Cluster(
                "destination", destination.bootstrap_servers, destination.security
            ),
            failover=source.mode == "failover",
            source_topic=source.topic,
            destination_topic=topic,
            intermediate_topic=sections["intermediate"].topic
            or (f"{topic}-proxy" if topic else ""),
            rules=topic_rules.parse(sections["topics_"])
            or (topic_rules.Rule(source.topic, topic),),
            start=start_position.parse(source.start),
        )

    @property
    def routes_group(self) -> str:
        """The consumer group with the states of routes (`common.route_states`)."""
        return f"{self.application}-routes"

    def select_source(self, source: Cluster) -> Settings:
        """The same settings with only this source: what is its own is what all have."""
        name = build_candidate_setting_name(source.number, OPTIONS)
        own_options = self.get_options(name) if name in self.values else {}
        common: dict[str, Value] = {
            setting.name: {} if setting.kind == "options" else ""
            for setting in SETTINGS
            if setting.candidate
        }
        own: dict[str, Value] = {
            f"source.{name}": getattr(source.security, name) for name in SECURITY
        }
        own["source.bootstrap_servers"] = source.bootstrap_servers
        own[OPTIONS] = {**self.source.consumer_options, **own_options}
        selected = Settings.build({**self.values, **common, **own}, self.given_by)
        return selected.leave_out(self.halted)

    def leave_out(self, halted: frozenset[str]) -> Settings:
        """The same settings without the routes with these intermediate topics."""
        return replace(self, halted=halted)

    def build_routes(self, topics: Iterable[str] = ()) -> list[Route]:
        """The routes for these topics, without halted ones; SettingsInvalid when the topics cannot
        be copied together.
        """
        selected = topic_rules.build_routes(self.rules, topics, self.intermediate.topic)
        conflicts = list(topic_rules.find_conflicts(self.rules, selected))
        if conflicts:
            raise refuse(conflicts, "route", "with the topics that are at the source, ")
        return [route for route in selected if route.intermediate_topic not in self.halted]

    def get_options(self, name: str) -> Options:
        """The raw options of one of the tables in `OPTION_TABLES`."""
        value = self.values[name]
        assert isinstance(value, Mapping)
        return value

    def list_filters(self) -> list[str]:
        """The settings, as far as set, that make the copy differ from its source."""
        names = ("filter.sql", "filter.function", "provenance.header")
        return [name for name in names if self.values[name]]

    def list_warnings(self) -> list[str]:
        """What the start says of the settings."""
        unsafe = (
            client_options.list_unsafe_options(name, self.get_options(name))
            for name in OPTION_TABLES
        )
        return [*self.not_taken, *chain(*unsafe)]

    def build_environment(self) -> dict[str, str]:
        """The environment variables that give a child process exactly these settings."""
        options = {
            client_options.get_variable(name, option): value
            for name in OPTION_TABLES
            for option, value in self.get_options(name).items()
        }
        return options | {
            BY_NAME[name].environment[0]: str(value)
            for name, value in self.values.items()
            if BY_NAME[name].environment and value not in ("", None)
        }


def list_own_security(values: Mapping[str, Value], number: int) -> dict[str, str]:
    """A source candidate's own TLS and SASL settings, by the last part of their names."""
    names = {name: build_candidate_setting_name(number, name) for name in SECURITY}
    return {name: str(values[own]) for name, own in names.items() if own in values}
