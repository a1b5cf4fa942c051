"""The topics of each route, as a start would find them: do they exist, is there a cycle, do they
have the partitions, and what would be created.

It calls the functions of a start (`topic_creation`) one by one, so that every error is
reported, not only the first. Topics that would be created are sent to the brokers with
`validate_only`: the brokers apply their policies and limits, and change nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from confluent_kafka.admin import AdminClient, NewTopic

from common.errors import ReoError
from common.kafka import topic_creation, topic_fitness, topics
from common.kafka.clients import create_admin_client
from common.kafka.copied_configs import Entries
from common.kafka.topics import Topic
from common.routes import Route
from common.settings import Settings, destination_kind
from reo.checks.findings import Finding, report_failure, report_ok

UNKNOWN_CONFIG = re.compile(r"Unknown topic config name: ([\w.]+)")
"""What brokers answer, and nothing else tells (`LogConfig.validateNames`)."""


@dataclass(slots=True)
class RouteTopics:
    """The existing topics: the sources by route, those of the destination, and the configurations
    of all of them.
    """

    settings: Settings
    sources: dict[Route, Topic]
    parked: dict[str, Topic]
    existing: dict[str, Topic]
    source_admin: AdminClient
    destination_admin: AdminClient
    brokers: int
    """Of the destination."""
    at_source: dict[str, Entries] = field(default_factory=dict)
    at_destination: dict[str, Entries] = field(default_factory=dict)
    tables: frozenset[str] | None = None
    """The existing tables; None when the copies are topics."""
    unknown_configs: set[str] = field(default_factory=set)
    """Topic configurations of the source that the destination's brokers do not know."""

    def get_source_config(self, name: str) -> Entries:
        """A source topic's configuration."""
        if name not in self.at_source:
            self.at_source[name] = topics.describe_config(
                self.source_admin,
                self.settings.source_cluster,
                name,
                self.settings.connect_timeout_s,
            )
        return self.at_source[name]

    def get_config(self, name: str) -> Entries | None:
        """A destination topic's configuration; None when there is no such topic."""
        if name in self.existing and name not in self.at_destination:
            self.at_destination[name] = topics.describe_config(
                self.destination_admin,
                self.settings.destination_cluster,
                name,
                self.settings.connect_timeout_s,
            )
        return self.at_destination.get(name)

    def is_complete(self) -> bool:
        """Whether a start would create no topic and add no partition."""
        written = topics.list_written_topics(self.settings, self.sources) | self.parked.keys()
        return self.existing.keys() >= written and all(
            self.existing[route.intermediate_topic].partitions >= source.partitions
            for route, source in self.sources.items()
        )

    def find_ready(self) -> dict[Route, Topic]:
        """The routes whose topics (and tables) exist with the source's partitions: only these can
        have a frontier for each partition.
        """
        partitions = {name: topic.partitions for name, topic in self.existing.items()}
        copies = partitions if self.tables is None else self.tables
        return {
            route: source
            for route, source in self.sources.items()
            if route.destination_topic in copies
            and partitions.get(route.intermediate_topic, 0) >= source.partitions
        }


def load_route_topics(settings: Settings) -> RouteTopics:
    """Describe the topics; TopicMissing and similar errors when a source topic does not exist."""
    source_admin, destination_admin = (
        create_admin_client(settings.source_cluster, settings),
        create_admin_client(settings.destination_cluster, settings),
    )
    timeout_s = settings.connect_timeout_s
    sources = topics.describe_sources(settings, source_admin, timeout_s)
    parked = topics.list_parked_topics(settings, sources)
    existing = topics.look_up(
        settings.destination_cluster,
        destination_admin,
        topics.list_written_topics(settings, sources) | parked.keys(),
        timeout_s,
    )
    brokers = topics.count_brokers(settings.destination_cluster, destination_admin, timeout_s)
    return RouteTopics(
        settings, sources, parked, existing, source_admin, destination_admin, brokers
    )


def check_topics(state: RouteTopics) -> Iterator[Finding]:
    """Cycles, partitions, and what would be created."""
    if not state.sources:
        yield report_ok(
            "source topics", "none matches the patterns now: the service would wait for one"
        )
    for route, source in state.sources.items():
        yield report_ok(
            f"source topic {source.name}",
            f"{source.partitions} partitions, copied to {route.destination_topic} through"
            f" {route.intermediate_topic}",
        )
    cycles = list(topic_fitness.find_cycles(state.sources, state.existing))
    yield from (
        (report_failure("cycle", cycle) for cycle in cycles)
        if cycles
        else (report_ok("cycle", "no source is a topic to which this service writes"),)
    )
    for name in dict.fromkeys(route.destination_topic for route in state.sources):
        routes = {
            route: source
            for route, source in state.sources.items()
            if route.destination_topic == name
        }
        try:
            partitions = topic_fitness.count_partitions(name, routes, state.existing)
        except ReoError as error:
            yield report_failure(f"topic {name}", error)
            continue
        if not destination_kind.is_outside_kafka(state.settings):
            yield _check_copy(state, next(iter(routes)), partitions)
        for route, source in routes.items():
            intermediate = topic_creation.build_intermediate_topic(
                state.settings,
                route.intermediate_topic,
                source.partitions,
                state.get_source_config(source.name),
                state.brokers,
            )
            yield _check_creation(state, state.existing.get(route.intermediate_topic), intermediate)
    for name, source in state.parked.items():
        yield _check_creation(
            state,
            state.existing.get(name),
            topic_creation.build_parked_topic(
                state.settings, name, state.get_source_config(source.name)
            ),
        )


def _check_copy(state: RouteTopics, route: Route, partitions: int) -> Finding:
    """A destination topic. Any existing topic tells which topic configurations its brokers know;
    while there is none, they refuse one after the other that they do not know.
    """
    source_entries = state.get_source_config(route.source_topic)
    while True:
        known: Entries = next(
            (entries for name in state.existing if (entries := state.get_config(name))),
            {
                name: entry
                for name, entry in source_entries.items()
                if name not in state.unknown_configs
            },
        )
        new_topic = topic_creation.build_destination_topic(
            state.settings, route.destination_topic, partitions, source_entries, known
        )
        finding = _check_creation(state, state.existing.get(route.destination_topic), new_topic)
        unknown = UNKNOWN_CONFIG.search(finding.seen)
        if unknown is None or unknown[1] not in (new_topic.config or {}):
            return finding
        state.unknown_configs.add(unknown[1])


def _check_creation(state: RouteTopics, existing: Topic | None, new_topic: NewTopic) -> Finding:
    """What a start would do about one destination topic; its brokers validate the request."""
    about = f"topic {new_topic.topic}"
    try:
        topic_creation.create_or_extend(
            state.destination_admin,
            state.settings.destination_cluster,
            existing,
            new_topic,
            state.settings.connect_timeout_s,
            validate_only=True,
        )
    except ReoError as error:
        return report_failure(about, error)
    if existing is None:
        config_text = ", ".join(
            f"{name}={value}" for name, value in sorted((new_topic.config or {}).items())
        )
        replicas = (
            f"{new_topic.replication_factor} replica"
            f"{'' if new_topic.replication_factor == 1 else 's'}"
            if new_topic.replication_factor > 0
            else "the brokers' default number of replicas"
        )
        return report_ok(
            about,
            f"does not exist: it would be created with {new_topic.num_partitions} partitions,"
            f" {replicas} and {config_text}",
        )
    if existing.partitions < new_topic.num_partitions:
        return report_ok(
            about,
            f"has {existing.partitions} partitions:"
            f" {new_topic.num_partitions - existing.partitions} would be added",
        )
    return report_ok(about, f"exists, {existing.partitions} partitions")
