"""Which source topics are copied now: the routes of the rules, each with its source topic as its
cluster describes it.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import replace

from confluent_kafka.admin import AdminClient

from common import clock
from common.errors import ClusterUnreachable, SourceRecreated, TopicMissing, TopicsUnfit
from common.kafka import topics
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S
from common.kafka.topics import Topic
from common.routes import Route, TopicPartition
from common.settings import Settings
from common.suggestions import suggest


def describe_sources(
    settings: Settings, client: AdminClient, timeout_s: float = REQUEST_TIMEOUT_S
) -> dict[Route, Topic]:
    """Every route with its source topic; TopicMissing for a named one that does not exist,
    TopicsUnfit when it lacks partitions of a range.
    """
    named = {route.source_topic for route in settings.build_routes()}
    deadline = clock.monotonic() + timeout_s
    while True:
        routes = list_routes(settings, client, timeout_s)
        existing = topics.look_up(
            settings.source_cluster, client, [route.source_topic for route in routes], timeout_s
        )
        missing = {route.source_topic for route in routes} - existing.keys()
        if not missing:
            return {route: _limit(route, existing[route.source_topic]) for route in routes}
        if missing & named:
            name = min(missing & named)
            raise TopicMissing(
                f"the source topic {name} does not exist at"
                f" {settings.source_cluster.bootstrap_servers}"
                f"{suggest(name, topics.list_names(settings.source_cluster, client, timeout_s))}",
                "Create it, or correct source.topic",
                topic=name,
            )
        # a topic that fits a pattern: created or deleted between the two requests
        if clock.monotonic() > deadline:
            raise ClusterUnreachable(
                f"the brokers of the {settings.source_cluster.name} cluster list the topic"
                f" {min(missing)}, and then do not know it",
                "Start again when all of them know the same topics",
            )
        clock.sleep(0.05)


def _limit(route: Route, source: Topic) -> Topic:
    """The source topic with the partitions of the route alone."""
    if not (route.partitions.is_whole or route.partitions.fits(source.partitions)):
        raise TopicsUnfit(
            f"{route}: the source topic {source.name} has the partitions 0 to"
            f" {source.partitions - 1}",
            f"Correct the range; {source.name}[{route.partitions.first}-] has all that follow",
        )
    count = route.partitions.count_in(source.partitions)
    return replace(source, partitions=count, other_partitions=source.partitions - count)


def list_routes(
    settings: Settings, client: AdminClient, timeout_s: float = REQUEST_TIMEOUT_S
) -> list[Route]:
    """The routes; with patterns, those of the topics that the principal may describe."""
    names: Collection[str] = ()
    if any(rule.is_pattern for rule in settings.rules):
        names = topics.list_names(settings.source_cluster, client, timeout_s)
    return settings.build_routes(names)


def list_source_partitions(copied: Mapping[Route, Topic]) -> list[TopicPartition]:
    """Every partition of these sources."""
    return list(map_source_partitions(copied).values())


def list_intermediate_partitions(copied: Mapping[Route, Topic]) -> list[TopicPartition]:
    """Every intermediate partition that these sources need."""
    return list(map_source_partitions(copied))


def map_source_partitions(copied: Mapping[Route, Topic]) -> dict[TopicPartition, TopicPartition]:
    """Every partition of these sources, by intermediate partition."""
    return {
        route.get_intermediate(partition): route.get_source(partition)
        for route, source in copied.items()
        for partition in range(source.partitions)
    }


def check_identity(copied: str, now: Topic) -> None:
    """SourceRecreated when the topic is not the one that the frontier names."""
    if copied != now.identity:
        raise SourceRecreated(
            f"the source topic {now.name} is not the one that was copied (identity {copied}, now"
            f" {now.identity}): it was deleted and recreated, or the address leads to another"
            " cluster. To copy the new topic, give it another destination.topic",
            topic=now.name,
        )


def check_none_deleted(before: Iterable[Route], now: Container[Route]) -> None:
    """TopicMissing when a source topic is gone; with a pattern, nothing else says so."""
    for route in before:
        if route not in now:
            raise TopicMissing(
                f"the source topic {route.source_topic} was deleted while it was copied: what had"
                " not been copied is lost. Start again to go on without it;"
                f" {route.destination_topic} stays as it is",
                topic=route.source_topic,
            )
