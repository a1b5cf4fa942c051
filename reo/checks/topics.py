"""The topics of each route, as a start would find them: are they there, is one copied into itself, have they the partitions, and what would be made.

The same functions as at a start (`common.topics`), asked one by one, so that all that is wrong is said, not only the first. What would be made is
handed to the brokers with `validate_only`: their policies and limits answer, and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from confluent_kafka.admin import AdminClient, NewTopic

from common import tables, topic_config, topics
from common.errors import ReoError
from common.kafka_clients import admin
from common.routes import Route
from common.settings import Settings
from common.topic_config import Entries
from common.topics import Topic
from reo.checks.findings import Finding, failed, ok


@dataclass(slots=True)
class Stand:
    """What there is: the sources by route, the topics of the destination, and the configurations of all of them."""

    settings: Settings
    sources: dict[Route, Topic]
    parked: dict[str, Topic]
    existing: dict[str, Topic]
    source_admin: AdminClient
    destination_admin: AdminClient
    at_source: dict[str, Entries] = field(default_factory=dict)
    at_destination: dict[str, Entries] = field(default_factory=dict)
    tables: frozenset[str] | None = None
    """Those that are there, where copies are tables."""

    def entries_of_source(self, name: str) -> Entries:
        """A source topic's configuration."""
        if name not in self.at_source:
            self.at_source[name] = topics.all_config(self.source_admin, self.settings.source, name)
        return self.at_source[name]

    def entries(self, name: str) -> Entries | None:
        """The configuration of a topic of the destination; None when there is no such topic."""
        if name in self.existing and name not in self.at_destination:
            self.at_destination[name] = topics.all_config(self.destination_admin, self.settings.destination, name)
        return self.at_destination.get(name)

    def ready(self) -> dict[Route, Topic]:
        """The routes whose topics (and tables) are there with the source's partitions: only these can have a frontier everywhere."""
        has = {name: topic.partitions for name, topic in self.existing.items()}
        copies = has if self.tables is None else self.tables
        return {route: source for route, source in self.sources.items()
                if route.destination_topic in copies and has.get(route.intermediate_topic, 0) >= source.partitions}


def stand(settings: Settings) -> Stand:
    """Look; TopicMissing and the like when a source is not there."""
    source_admin, destination_admin = admin(settings.source, settings), admin(settings.destination, settings)
    timeout_s = settings.number("connect_timeout_s")
    sources = topics.sources(settings, source_admin, timeout_s)
    parked = topics.parked_topics(settings, sources)
    existing = topics.look_up(settings.destination, destination_admin, topics.written_topics(settings, sources) | parked.keys(), timeout_s)
    return Stand(settings, sources, parked, existing, source_admin, destination_admin)


def check(found: Stand) -> Iterator[Finding]:
    """Cycles, partitions, and what would be made."""
    if not found.sources:
        yield ok("source topics", "none fits the patterns now: the service would wait for one")
    for route, source in found.sources.items():
        yield ok(f"source topic {source.name}", f"{source.partitions} partitions, to {route.destination_topic} over {route.intermediate_topic}")
    cycles = list(topics.cycles(found.sources, found.existing))
    yield from (failed("cycle", cycle) for cycle in cycles) if cycles else (ok("cycle", "no source is a topic to which this service writes"),)
    for name in dict.fromkeys(route.destination_topic for route in found.sources):
        own = {route: source for route, source in found.sources.items() if route.destination_topic == name}
        try:
            wanted = topics.partitions_of(name, own, found.existing)
        except ReoError as unfit:
            yield failed(f"topic {name}", unfit)
            continue
        if not tables.named(found.settings):
            yield _copy(found, next(iter(own)), wanted)
        for route, source in own.items():
            between = topics.new_intermediate(found.settings, route, source, found.entries_of_source(source.name))
            yield _made(found, found.existing.get(route.intermediate_topic), between)
    for name, source in found.parked.items():
        yield _made(found, found.existing.get(name), topics.new_parked(found.settings, name, found.entries_of_source(source.name)))


def _copy(found: Stand, route: Route, partitions: int) -> Finding:
    """A destination topic. Which configurations its brokers know any topic of theirs tells; where there is none yet they are asked about none, and the
    source's are said: a start takes over what is known there.
    """
    there = found.entries_of_source(route.source_topic)
    known: Entries = next((entries for name in found.existing if (entries := found.entries(name))), {})
    asked = topics.new_copy(found.settings, route, partitions, there, known)
    return _made(found, found.existing.get(route.destination_topic), asked, topic_config.for_copy(there, known or there))


def _made(found: Stand, existing: Topic | None, wanted: NewTopic, config: Mapping[str, str] | None = None) -> Finding:
    """What a start would do about one topic of the destination, asked of its brokers."""
    about = f"topic {wanted.topic}"
    try:
        topics.make(found.destination_admin, found.settings.destination, existing, wanted, only_ask=True)
    except ReoError as refused:
        return failed(about, refused)
    if existing is None:
        given = ", ".join(f"{name}={value}" for name, value in sorted((config or wanted.config or {}).items()))
        return ok(about, f"does not exist: it would be made with {wanted.num_partitions} partitions and {given}")
    if existing.partitions < wanted.num_partitions:
        return ok(about, f"has {existing.partitions} partitions: {wanted.num_partitions - existing.partitions} would be added")
    return ok(about, f"is there, {existing.partitions} partitions")
