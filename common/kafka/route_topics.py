"""The topics of all routes as both clusters describe them at one moment: a start creates from it
what is missing, and `reo check` says what would be created.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from confluent_kafka.admin import AdminClient

from common.frontier import Frontier
from common.kafka import source_topics, topic_fitness, topics
from common.kafka.clients import create_admin_clients
from common.kafka.copied_configs import Entries
from common.kafka.topics import Topic
from common.routes import Route, TopicPartition
from common.settings import Settings, destination_kind
from common.settings.clusters import Cluster

NEW_PARTITION_S = 0.05
"""How much longer to wait for a new topic, for each partition: a busy broker did not know one of
2,000 partitions after 30 s.
"""


@dataclass(slots=True)
class RouteTopics:
    """The existing topics: the sources by route, and those of the destination by name. A topic's
    configuration is read once, when it is asked for.
    """

    settings: Settings
    source_admin: AdminClient
    destination_admin: AdminClient
    sources: dict[Route, Topic]
    parked: dict[str, Topic]
    """The topics for parked records that there are to be, each with one of its source topics."""
    existing: dict[str, Topic]
    brokers: int
    """Of the destination."""
    names: Collection[str] = ()
    """Of the destination's topics, as far as the principal may describe them."""
    source_configs: dict[str, Entries] = field(default_factory=dict)
    configs: dict[str, Entries] = field(default_factory=dict)

    def get_source_config(self, name: str) -> Entries:
        """A source topic's configuration."""
        if name not in self.source_configs:
            self.source_configs[name] = self._describe(
                self.source_admin, self.settings.source_cluster, name, 0
            )
        return self.source_configs[name]

    def get_config(self, name: str) -> Entries:
        """A destination topic's configuration; it exists, or was just created."""
        if name not in self.configs:
            partitions = sum(source.partitions for source in self.sources.values())
            self.configs[name] = self._describe(
                self.destination_admin,
                self.settings.destination_cluster,
                name,
                0 if name in self.existing else partitions,
            )
        return self.configs[name]

    def _describe(
        self, admin: AdminClient, cluster: Cluster, name: str, new_partitions: int
    ) -> Entries:
        timeout_s = self.settings.connect_timeout_s + NEW_PARTITION_S * new_partitions
        return topics.describe_config(admin, cluster, name, timeout_s)

    def find_config(self, name: str) -> Entries | None:
        """A destination topic's configuration; None when there was no such topic."""
        return self.get_config(name) if name in self.existing else None

    def group_by_destination(self) -> dict[str, dict[Route, Topic]]:
        """The routes to each destination topic, with their source topics."""
        groups: dict[str, dict[Route, Topic]] = {}
        for route, source in self.sources.items():
            groups.setdefault(route.destination_topic, {})[route] = source
        return groups

    def is_complete(self) -> bool:
        """Whether a start would create no topic and add no partition."""
        written = topics.list_written_topics(self.settings, self.sources) | self.parked.keys()
        return self.existing.keys() >= written and all(
            self.existing[route.intermediate_topic].partitions >= source.partitions
            for route, source in self.sources.items()
        )


def load_route_topics(settings: Settings) -> RouteTopics:
    """Describe the topics; TopicMissing and similar errors when a source topic does not exist."""
    source_admin, destination_admin = create_admin_clients(settings)
    timeout_s = settings.connect_timeout_s
    sources = source_topics.describe_sources(settings, source_admin, timeout_s)
    parked = topics.list_parked_topics(settings, sources)
    existing = topics.look_up(
        settings.destination_cluster,
        destination_admin,
        topics.list_written_topics(settings, sources) | parked.keys(),
        timeout_s,
    )
    if any(
        topic_fitness.has_more_partitions(existing.get(route.intermediate_topic), source)
        for route, source in sources.items()
    ):
        # the source may have got partitions between the two requests
        now = source_topics.describe_sources(settings, source_admin, timeout_s)
        sources = {route: now.get(route, source) for route, source in sources.items()}
    names = topics.list_names(settings.destination_cluster, destination_admin, timeout_s)
    brokers = topics.count_brokers(settings.destination_cluster, destination_admin, timeout_s)
    return RouteTopics(
        settings, source_admin, destination_admin, sources, parked, existing, brokers, names
    )


def find_gone(
    settings: Settings,
    routes: Collection[Route],
    existing: Mapping[str, Topic],
    frontiers: Mapping[TopicPartition, Frontier],
) -> dict[TopicPartition, str]:
    """The intermediate partitions whose frontier is of a destination topic that was deleted, or
    recreated since, each with its name: a start does not use such a frontier, and copies again.
    `existing` has the destination's topics by name.
    """
    if destination_kind.is_outside_kafka(settings):
        return {}
    names = {route.intermediate_topic: route.destination_topic for route in routes}
    ids = {name: topic.topic_id for name, topic in existing.items()}
    return {
        tp: names[tp.topic]
        for tp, frontier in frontiers.items()
        if tp.topic in names and ids.get(names[tp.topic]) != frontier.destination_topic_id
    }
