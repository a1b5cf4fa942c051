"""Create or extend the intermediate and the destination topics to match the source topics.

The intermediate topic has exactly the source's partitions, because intermediate partition p holds
source partition p and nothing else. The destination topic has at least as many. An intermediate
topic may be lost at any time, so it is created with few replicas
(`intermediate.replication_factor`). `prepare_topics` is idempotent; every process of the service
may call it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from common.errors import StageFailed, TopicMissing
from common.kafka import copied_configs, topic_fitness, topics
from common.kafka.client_errors import translate
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S, ask_for_change
from common.kafka.copied_configs import Entries
from common.kafka.route_topics import RouteTopics, load_route_topics
from common.kafka.topics import Topic
from common.routes import Route
from common.settings import Settings, destination_kind
from common.settings.clusters import Cluster

log = logging.getLogger(__name__)


def prepare_topics(
    settings: Settings, beat: Callable[[], None] = lambda: None
) -> dict[Route, Topic]:
    """Create or extend missing topics, refuse topics that do not allow an exact copy, and return
    the routes with their source topics. `beat` is called for each topic: many take long.
    """
    return create_missing(load_route_topics(settings), beat)


def create_missing(
    state: RouteTopics, beat: Callable[[], None] = lambda: None
) -> dict[Route, Topic]:
    """The same, for topics that were described just now."""
    for cycle in topic_fitness.find_cycles(state.sources, state.existing):
        raise cycle
    partitions = {
        name: topic_fitness.count_partitions(name, routes, state.existing)
        for name, routes in state.group_by_destination().items()
    }
    for route in state.sources:
        beat()
        _create_route_topics(state, route, partitions[route.destination_topic])
    for name in state.parked:
        prepare_topic(state, build_parked_topic(state, name))
    return state.sources


def _create_route_topics(state: RouteTopics, route: Route, partitions: int) -> None:
    """Create or extend the intermediate and the destination topic of a route, and check them.
    (With `destination.class` there is no destination topic.)
    """
    settings, source = state.settings, state.sources[route]
    source_config = state.get_source_config(source.name)
    intermediate = build_intermediate_topic(state, route)
    # first: an existing topic shows which configurations the brokers know
    existing_intermediate = state.existing.get(route.intermediate_topic) or create(
        state.destination_admin,
        settings.destination_cluster,
        intermediate,
        settings.connect_timeout_s,
    )
    known, copy = state.get_config(route.intermediate_topic), None
    if not destination_kind.is_outside_kafka(settings):
        if route.destination_topic not in state.existing:
            for name, reason in copied_configs.list_not_copied(source_config, known).items():
                log.info("%s of the source topic %s is not copied: %s", name, source.name, reason)
        prepare_topic(state, build_destination_topic(state, route, partitions, known))
        copy = state.get_config(route.destination_topic)
    # extended last: a destination with fewer partitions is refused at the next start
    if existing_intermediate is not None:
        create_or_extend(
            state.destination_admin,
            settings.destination_cluster,
            existing_intermediate,
            intermediate,
            settings.connect_timeout_s,
        )
    topic_fitness.check_configs(route, source_config, known, copy)


def prepare_topic(state: RouteTopics, new: NewTopic, validate_only: bool = False) -> None:
    """Create or extend a topic of the destination; see `create_or_extend`."""
    create_or_extend(
        state.destination_admin,
        state.settings.destination_cluster,
        state.existing.get(new.topic),
        new,
        state.settings.connect_timeout_s,
        validate_only,
    )


def build_intermediate_topic(state: RouteTopics, route: Route) -> NewTopic:
    """An intermediate topic as reo creates it, with no more replicas than there are brokers."""
    source = state.sources[route]
    return NewTopic(
        route.intermediate_topic,
        source.partitions,
        min(state.settings.intermediate.replication_factor, state.brokers),
        config=copied_configs.build_intermediate_config(state.get_source_config(source.name)),
    )


def build_destination_topic(
    state: RouteTopics, route: Route, partitions: int, known: Entries
) -> NewTopic:
    """A destination topic as reo creates it; `known` is any topic's configuration there."""
    source_config = state.get_source_config(route.source_topic)
    return NewTopic(
        route.destination_topic,
        partitions,
        state.settings.topics.replication_factor,
        config=copied_configs.build_destination_config(source_config, known),
    )


def build_parked_topic(state: RouteTopics, name: str) -> NewTopic:
    """A topic for parked records as reo creates it."""
    source_config = state.get_source_config(state.parked[name].name)
    return NewTopic(
        name,
        1,
        state.settings.topics.replication_factor,
        config=copied_configs.build_parked_config(source_config),
    )


def create_or_extend(
    client: AdminClient,
    cluster: Cluster,
    existing: Topic | None,
    new: NewTopic,
    timeout_s: float,
    validate_only: bool = False,
) -> None:
    """Create the topic, or add missing partitions. With `validate_only` nothing changes: the
    brokers only validate the request.
    """
    current = existing or create(client, cluster, new, timeout_s, validate_only)
    if current is None or current.partitions >= new.num_partitions:
        return
    log.log(
        _get_log_level(validate_only),
        "adding partitions to topic %s: %d, then %d",
        new.topic,
        current.partitions,
        new.num_partitions,
    )
    create_partitions = partial(
        client.create_partitions,
        [NewPartitions(new.topic, new.num_partitions)],
        validate_only=validate_only,
    )
    _ask(client, create_partitions, KafkaError.INVALID_PARTITIONS, timeout_s, cluster, new)


def create(
    client: AdminClient,
    cluster: Cluster,
    new: NewTopic,
    timeout_s: float,
    validate_only: bool = False,
) -> Topic | None:
    """Create the topic. If another process was first, return the topic: it has fewer partitions
    than `new` if the other process looked at the source before a partition was added there.
    """
    log.log(
        _get_log_level(validate_only),
        "creating topic %s with %d partitions%s",
        new.topic,
        new.num_partitions,
        "".join(f", {name}={value}" for name, value in sorted((new.config or {}).items())),
    )
    create_topics = partial(client.create_topics, [new], validate_only=validate_only)
    if _ask(client, create_topics, KafkaError.TOPIC_ALREADY_EXISTS, timeout_s, cluster, new):
        return None
    return topics.look_up(cluster, client, [new.topic], timeout_s).get(new.topic)


def _ask(
    client: AdminClient,
    ask: Callable[..., dict[str, Any]],
    is_done: int,
    timeout_s: float,
    cluster: Cluster,
    new: NewTopic,
) -> bool:
    """Ask until there is an answer, at most about `timeout_s`. False when the answer is the error
    code `is_done`: another process was first, or an attempt whose answer was lost.
    """
    request_timeout_s = min(timeout_s, REQUEST_TIMEOUT_S)

    def ask_once() -> bool:
        try:
            ask(request_timeout=request_timeout_s)[new.topic].result()
        except KafkaException as failed:
            if failed.args[0].code() == is_done:
                return False
            error = translate(failed.args[0], _describe(cluster, new))
            if isinstance(error, TopicMissing):
                # since it was described; the next start creates it
                raise StageFailed(str(error)) from None
            raise
        return True

    return ask_for_change(cluster, client, _describe(cluster, new), timeout_s, ask_once)


def _get_log_level(validate_only: bool) -> int:
    return logging.DEBUG if validate_only else logging.INFO


def _describe(cluster: Cluster, new: NewTopic) -> str:
    return (
        f"creating topic {new.topic} with {new.num_partitions} partitions on the {cluster.name}"
        " cluster"
    )
