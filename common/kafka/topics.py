"""Topics: describe the source topics, and create or extend the intermediate and the destination
topics to match.

The intermediate topic has exactly the source's partitions, because intermediate partition p holds
source partition p and nothing else. The destination topic has at least as many. `prepare` is
idempotent; every process of the service may call it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType

from common import partition_mapping
from common.errors import (
    ClusterUnreachable,
    Cycle,
    SettingsInvalid,
    SourceRecreated,
    TopicMissing,
    TopicsUnfit,
)
from common.kafka import topic_config
from common.kafka.clients import REQUEST_TIMEOUT_S, admin, ask_cluster, ask_with_retries, translate
from common.nearest import suggest
from common.origin import identity_of
from common.routes import SAME, Place, Route
from common.settings import Settings, destination_settings
from common.settings.source_clusters import Cluster

log = logging.getLogger(__name__)

NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as its cluster describes it. A recreated topic has another `identity`."""

    name: str
    topic_id: str
    partitions: int
    cluster_id: str

    @property
    def identity(self) -> str:
        """See `common.origin.identity_of`."""
        return identity_of(self.cluster_id, self.name, self.topic_id)


def describe(
    client: AdminClient, names: Collection[str], timeout_s: float = REQUEST_TIMEOUT_S
) -> dict[str, Topic]:
    """The existing topics by name; KafkaException when the cluster does not answer."""
    cluster_id = str(client.describe_cluster(request_timeout=timeout_s).result().cluster_id)
    described = {}
    futures = (
        client.describe_topics(TopicCollection(list(names)), request_timeout=timeout_s)
        if names
        else {}
    )
    for name, future in futures.items():
        try:
            topic = future.result()
        except KafkaException as failed:
            if failed.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
        else:
            topic_id = str(topic.topic_id)
            described[name] = Topic(
                name, "" if topic_id == NO_TOPIC_ID else topic_id, len(topic.partitions), cluster_id
            )
    return described


def get_cluster_id(
    cluster: Cluster, client: AdminClient, timeout_s: float = REQUEST_TIMEOUT_S
) -> str:
    """The cluster id."""
    return ask_cluster(
        cluster,
        client,
        timeout_s,
        lambda: str(
            client.describe_cluster(request_timeout=min(timeout_s, REQUEST_TIMEOUT_S))
            .result()
            .cluster_id
        ),
    )


def look_up(
    cluster: Cluster,
    client: AdminClient,
    names: Collection[str],
    timeout_s: float = REQUEST_TIMEOUT_S,
) -> dict[str, Topic]:
    """The existing topics by name; retries until the cluster answers, at most about `timeout_s`:
    then ClusterUnreachable or AccessRefused.
    """
    return ask_cluster(
        cluster,
        client,
        timeout_s,
        lambda: describe(client, names, min(timeout_s, REQUEST_TIMEOUT_S)),
    )


def describe_sources(
    settings: Settings, client: AdminClient, timeout_s: float = REQUEST_TIMEOUT_S
) -> dict[Route, Topic]:
    """Every route and its source topic as it is now; TopicMissing when a topic does not exist."""
    routes = list_routes(settings, client, timeout_s)
    existing = look_up(
        settings.source_cluster, client, [route.source_topic for route in routes], timeout_s
    )
    for route in routes:
        if route.source_topic not in existing:
            known_names = ask_cluster(
                settings.source_cluster,
                client,
                timeout_s,
                lambda: client.list_topics(timeout=min(timeout_s, REQUEST_TIMEOUT_S)).topics,
            )
            raise TopicMissing(
                f"the source topic {route.source_topic} does not exist at"
                f" {settings.source_cluster.bootstrap_servers}"
                f"{suggest(route.source_topic, known_names)}",
                "Create it, or correct source.topic",
            )
    return {route: existing[route.source_topic] for route in routes}


def list_routes(
    settings: Settings, client: AdminClient, timeout_s: float = REQUEST_TIMEOUT_S
) -> list[Route]:
    """The routes. With patterns, the source is asked for its topics; topics that the principal may
    not describe are skipped.
    """
    names: Collection[str] = ()
    if any(rule.is_pattern for rule in settings.rules):
        names = ask_cluster(
            settings.source_cluster,
            client,
            timeout_s,
            lambda: client.list_topics(timeout=min(timeout_s, REQUEST_TIMEOUT_S)).topics,
        )
    return settings.routes(names)


def list_intermediate_partitions(copied: Mapping[Route, Topic]) -> list[Place]:
    """Every intermediate partition that these sources need."""
    return [
        route.intermediate(partition)
        for route, source in copied.items()
        for partition in range(source.partitions)
    ]


def check_identity(copied: str, now: Topic) -> None:
    """SourceRecreated when the topic is not the one that the frontier names."""
    if copied != now.identity:
        raise SourceRecreated(
            f"the source topic {now.name} is not the one that was copied (identity {copied}, now"
            f" {now.identity}): it was deleted and recreated, or the address leads to another"
            " cluster. To copy the new topic, give it another destination.topic"
        )


def prepare(settings: Settings) -> dict[Route, Topic]:
    """Create or extend missing topics, refuse topics that do not allow an exact copy, and return
    the routes with their source topics.
    """
    timeout_s = settings.connect_timeout_s
    source_admin, destination_admin = (
        admin(settings.source_cluster, settings),
        admin(settings.destination_cluster, settings),
    )
    copied = describe_sources(settings, source_admin, timeout_s)
    parked = list_parked_topics(settings, copied)
    existing = look_up(
        settings.destination_cluster,
        destination_admin,
        list_written_topics(settings, copied) | parked.keys(),
        timeout_s,
    )
    if any(
        _has_more_partitions(existing.get(route.intermediate_topic), source)
        for route, source in copied.items()
    ):
        # the source may have got partitions between the two requests
        now = describe_sources(settings, source_admin, timeout_s)
        copied = {route: now.get(route, source) for route, source in copied.items()}
    for cycle in find_cycles(copied, existing):
        raise cycle
    partition_counts = {
        name: count_partitions(
            name,
            {route: source for route, source in copied.items() if route.destination_topic == name},
            existing,
        )
        for name in dict.fromkeys(route.destination_topic for route in copied)
    }
    for route, source in copied.items():
        _create_route_topics(
            settings,
            source_admin,
            destination_admin,
            route,
            source,
            existing,
            partition_counts[route.destination_topic],
        )
    for name, source in parked.items():
        source_config = describe_config(source_admin, settings.source_cluster, source.name)
        create_or_extend(
            destination_admin,
            settings.destination_cluster,
            existing.get(name),
            new_parked(settings, name, source_config),
        )
    return copied


def list_written_topics(settings: Settings, copied: Iterable[Route]) -> set[str]:
    """The names of every intermediate topic, and of every destination topic, unless these are
    tables.
    """
    has_destination_topics = not destination_settings.is_outside_kafka(settings)
    return {
        name
        for route in copied
        for name in (
            route.intermediate_topic,
            *([route.destination_topic] if has_destination_topics else []),
        )
    }


def list_parked_topics(settings: Settings, copied: Mapping[Route, Topic]) -> dict[str, Topic]:
    """The topics for parked records, each with one of its source topics; SettingsInvalid when such
    a topic has another use.
    """
    parked = {
        route.parked_topic: source
        for route, source in copied.items()
        if settings.filter.on_error == "park"
    }
    for name in list_written_topics(settings, copied) & parked.keys():
        raise SettingsInvalid(
            f"records are to be parked on {name}, which is a destination or an intermediate topic:"
            " rename one"
        )
    return parked


def find_cycles(copied: Mapping[Route, Topic], existing: Mapping[str, Topic]) -> Iterator[Cycle]:
    """An error for each route whose source topic this service writes."""
    written = {topic.identity for topic in existing.values()}
    for route, source in copied.items():
        own = existing.get(route.destination_topic)
        if own is not None and own.identity == source.identity:
            yield Cycle(
                f"source and destination are the same topic of the same cluster ({source.name},"
                f" cluster {source.cluster_id}): give destination.topic another name"
            )
        elif source.identity in written:
            yield Cycle(
                f"{route} reads what this service writes: {source.name} of cluster"
                f" {source.cluster_id} is the destination or the intermediate topic of another"
                " route. Make the rule or pattern narrower, or copy the one with another service"
            )


def count_partitions(
    name: str, copied: Mapping[Route, Topic], existing: Mapping[str, Topic]
) -> int:
    """The number of partitions that a destination topic needs; TopicsUnfit when it has too few, or
    an intermediate topic has too many.
    """
    destination, growing = existing.get(name), all(route.mapping == SAME for route in copied)
    for route, source in copied.items():
        intermediate = existing.get(route.intermediate_topic)
        if intermediate is not None and _has_more_partitions(intermediate, source):
            raise TopicsUnfit(
                f"the intermediate topic {intermediate.name} has {intermediate.partitions}"
                f" partitions, the source topic {source.partitions}: they have to be equal; name"
                " another intermediate.topic"
            )
        followed = (
            intermediate.partitions if intermediate is not None and growing else source.partitions
        )
        least = partition_mapping.get_min_partitions(route.mapping, followed)
        if destination is not None and destination.partitions < least:
            needed = "" if route.mapping == SAME else f", the mapping {route.mapping} needs {least}"
            raise TopicsUnfit(
                f"the destination topic {name} has {destination.partitions} partitions, the source"
                f" topic {source.name} {source.partitions}{needed}: add partitions to it, or name"
                " another destination.topic"
            )
    if destination is not None and not growing:
        # added partitions move keys to other partitions: the owner of the topic decides that
        return destination.partitions
    return max(
        partition_mapping.count_new_partitions(route.mapping, source.partitions)
        for route, source in copied.items()
    )


def _has_more_partitions(intermediate: Topic | None, source: Topic) -> bool:
    return intermediate is not None and intermediate.partitions > source.partitions


def _create_route_topics(
    settings: Settings,
    source_admin: AdminClient,
    destination_admin: AdminClient,
    route: Route,
    source: Topic,
    existing: Mapping[str, Topic],
    partitions: int,
) -> None:
    """Create or extend the intermediate and the destination topic of a route, and check them.
    (Stage two creates tables.)
    """
    source_config = describe_config(source_admin, settings.source_cluster, source.name)
    intermediate = new_intermediate(settings, route, source, source_config)
    # first: an existing topic shows which configurations the brokers know
    if route.intermediate_topic not in existing:
        create_or_extend(destination_admin, settings.destination_cluster, None, intermediate)
    if not destination_settings.is_outside_kafka(settings):
        known = describe_config(
            destination_admin, settings.destination_cluster, route.intermediate_topic
        )
        destination = existing.get(route.destination_topic)
        not_copied = topic_config.refused(source_config, known) if destination is None else {}
        for name, reason in not_copied.items():
            log.info("%s of the source topic %s is not copied: %s", name, source.name, reason)
        create_or_extend(
            destination_admin,
            settings.destination_cluster,
            destination,
            new_copy(settings, route, partitions, source_config, known),
        )
    # extended last: a destination with fewer partitions is refused at the next start
    if route.intermediate_topic in existing:
        create_or_extend(
            destination_admin,
            settings.destination_cluster,
            existing[route.intermediate_topic],
            intermediate,
        )
    _check_existing(destination_admin, settings, route, topic_config.limit(source_config))


def new_intermediate(
    settings: Settings, route: Route, source: Topic, source_config: topic_config.Entries
) -> NewTopic:
    """The intermediate topic as reo creates it; `source_config` is the source topic's
    configuration.
    """
    return NewTopic(
        route.intermediate_topic,
        source.partitions,
        settings.topics.replication_factor,
        config=topic_config.for_intermediate(source_config),
    )


def new_parked(settings: Settings, name: str, source_config: topic_config.Entries) -> NewTopic:
    """A topic for parked records as reo creates it."""
    return NewTopic(
        name, 1, settings.topics.replication_factor, config=topic_config.for_parked(source_config)
    )


def new_copy(
    settings: Settings,
    route: Route,
    partitions: int,
    source_config: topic_config.Entries,
    known: topic_config.Entries,
) -> NewTopic:
    """The destination topic as reo creates it; `known` is the configuration of any topic of that
    cluster.
    """
    return NewTopic(
        route.destination_topic,
        partitions,
        settings.topics.replication_factor,
        config=topic_config.for_copy(source_config, known),
    )


def check_none_deleted(before: Iterable[Route], now: Container[Route]) -> None:
    """TopicMissing when a source topic no longer exists; with a pattern, nothing else reports
    it.
    """
    for route in before:
        if route not in now:
            raise TopicMissing(
                f"the source topic {route.source_topic} was deleted while it was copied: what had"
                " not been copied is lost. Start again to go on without it;"
                f" {route.destination_topic} stays as it is"
            )


def describe_config(client: AdminClient, cluster: Cluster, name: str) -> dict[str, Any]:
    """A topic's configuration, name → ConfigEntry. Retries while a broker does not know a new topic
    yet.
    """
    resource = ConfigResource(ResourceType.TOPIC, name)

    def ask() -> dict[str, Any]:
        return client.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)[  # type: ignore[no-any-return]
            resource
        ].result()

    doing = f"reading the configuration of topic {name} of the {cluster.name} cluster"
    return ask_with_retries(doing, REQUEST_TIMEOUT_S, ask, (ClusterUnreachable, TopicMissing))


def get_message_bytes_max(client: AdminClient, cluster: Cluster, name: str) -> int:
    """The topic's max.message.bytes: the limit on a batch of records as the broker stores it."""
    return int(describe_config(client, cluster, name)["max.message.bytes"].value)


def is_compacted(client: AdminClient, cluster: Cluster, name: str) -> bool:
    """Whether compaction can remove records from the middle of the topic."""
    return "compact" in str(describe_config(client, cluster, name)["cleanup.policy"].value)


def create_or_extend(
    client: AdminClient,
    cluster: Cluster,
    existing: Topic | None,
    new: NewTopic,
    validate_only: bool = False,
) -> None:
    """Create the topic, or add missing partitions. With `validate_only` nothing changes: the
    brokers only validate the request.
    """
    options = {"request_timeout": REQUEST_TIMEOUT_S, "validate_only": validate_only}
    level = logging.DEBUG if validate_only else logging.INFO
    try:
        if existing is None:
            log.log(level, "creating topic %s with %d partitions", new.topic, new.num_partitions)
            client.create_topics([new], **options)[new.topic].result()
        elif existing.partitions < new.num_partitions:
            log.log(
                level,
                "adding partitions to topic %s: %d, then %d",
                new.topic,
                existing.partitions,
                new.num_partitions,
            )
            client.create_partitions([NewPartitions(new.topic, new.num_partitions)], **options)[
                new.topic
            ].result()
    except KafkaException as failed:
        code, doing = (
            failed.args[0].code(),
            f"creating topic {new.topic} on the {cluster.name} cluster",
        )
        if code in (KafkaError.INVALID_CONFIG, KafkaError.POLICY_VIOLATION):
            raise TopicsUnfit(
                f"{doing}: {failed.args[0].str()}. Create it as the cluster requires it, with"
                f" {new.num_partitions} partitions"
            ) from None
        if code == KafkaError.INVALID_REPLICATION_FACTOR:
            raise TopicsUnfit(
                f"{doing}: {failed.args[0].str()}. Set topics.replication_factor to no more than"
                " the cluster has brokers"
            ) from None
        # another process was first
        if code not in (KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.INVALID_PARTITIONS):
            raise translate(failed.args[0], doing) from None
        if (
            existing is None
            and not validate_only
            and (created := look_up(cluster, client, [new.topic]).get(new.topic))
        ):
            # the other process may have created it before a partition was added to the source
            create_or_extend(client, cluster, created, new)


def _check_existing(
    client: AdminClient, settings: Settings, route: Route, source_limit: int
) -> None:
    """TopicsUnfit for topics that do not allow an exact copy; a warning for a destination with a
    smaller limit on records.
    """
    intermediate = describe_config(client, settings.destination_cluster, route.intermediate_topic)
    copy = (
        None
        if destination_settings.is_outside_kafka(settings)
        else describe_config(client, settings.destination_cluster, route.destination_topic)
    )
    for error in find_unfit_configs(route, source_limit, intermediate, copy):
        raise error
    limit = source_limit if copy is None else topic_config.limit(copy)
    if limit < source_limit:
        log.warning(
            "the destination topic takes records of up to %d bytes, the source topic has up to %d:"
            " a larger one will stop the copy",
            limit,
            source_limit,
        )


def find_unfit_configs(
    route: Route,
    source_limit: int,
    intermediate: topic_config.Entries | None,
    copy: topic_config.Entries | None,
) -> Iterator[TopicsUnfit]:
    """An error for each configuration of existing topics that prevents an exact copy;
    `source_limit` is the source's largest batch in bytes.
    """
    # a producer would split refused batches without end, and copy nothing
    if intermediate is not None and topic_config.limit(intermediate) < source_limit:
        yield TopicsUnfit(
            f"the intermediate topic {route.intermediate_topic} takes batches of up to"
            f" {topic_config.limit(intermediate)} bytes, the source topic has up to {source_limit}:"
            " set its max.message.bytes to at least"
            f" {source_limit + topic_config.WRAPPED_EXTRA_BYTES}, or run `reo topics`"
        )
    if intermediate is not None and "compact" in str(intermediate["cleanup.policy"].value):
        yield TopicsUnfit(
            f"the intermediate topic {route.intermediate_topic} has"
            f" cleanup.policy={intermediate['cleanup.policy'].value}: compaction deletes records"
            " that are not copied yet. Set it to delete, or run `reo topics --apply`; then start"
            " again"
        )
    if copy is not None and str(copy["message.timestamp.type"].value) != "CreateTime":
        yield TopicsUnfit(
            f"the destination topic {route.destination_topic} has"
            " message.timestamp.type=LogAppendTime, which replaces every timestamp: set it to"
            " CreateTime"
        )
