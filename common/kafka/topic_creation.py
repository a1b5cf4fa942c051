"""Create or extend the intermediate and the destination topics to match the source topics.

The intermediate topic has exactly the source's partitions, or those of the route's range, because
an intermediate partition holds one source partition and nothing else. The destination topic has at
least as many as the source. An intermediate topic may be lost at any time, so it is created with
few replicas (`intermediate.replication_factor`). `prepare_topics` is idempotent; every process of
the service may call it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Container
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from common import clock
from common.errors import TopicMissing
from common.kafka import copied_configs, topic_fitness, topics
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S, ask_for_change
from common.kafka.copied_configs import Entries
from common.kafka.route_topics import RouteTopics, load_route_topics
from common.kafka.topics import Topic
from common.routes import Route
from common.settings import Settings, destination_kind
from common.settings.clusters import Cluster

log = logging.getLogger(__name__)
AGAIN_S = 2.0
AGAIN_MAX_S = 60.0
"""After this time somebody deletes what reo creates, or a broker never hears of a topic."""


def prepare_topics(
    settings: Settings, beat: Callable[[], None] = lambda: None
) -> dict[Route, Topic]:
    """Create or extend missing topics, refuse topics that do not allow an exact copy, and return
    the routes with their source topics. `beat` is called for each topic: many take long.
    """
    return create_missing(load_route_topics(settings), beat)


def create_missing(
    state: RouteTopics,
    beat: Callable[[], None] = lambda: None,
    known: Container[Route] = (),
) -> dict[Route, Topic]:
    """The same, for topics that were described just now; again when one was deleted since, for
    AGAIN_MAX_S. Routes that are `known` are prepared already.
    """
    gives_up_at_s = math.inf
    while True:
        try:
            return _create_missing(state, beat, known)
        except TopicMissing as missing:  # a source topic is named when they are described again
            gives_up_at_s = min(gives_up_at_s, clock.monotonic() + AGAIN_MAX_S)
            if clock.monotonic() >= gives_up_at_s:
                raise
            log.info("a topic was deleted just now: %s", missing)
            beat()
            clock.sleep(AGAIN_S)
            state = load_route_topics(state.settings)


def _create_missing(
    state: RouteTopics, beat: Callable[[], None], known: Container[Route]
) -> dict[Route, Topic]:
    for cycle in topic_fitness.find_cycles(state.sources, state.existing):
        raise cycle
    for overlap in topic_fitness.find_overlaps(state.sources, state.names):
        raise overlap
    partitions = {
        name: topic_fitness.count_partitions(name, routes, state.existing)
        for name, routes in state.group_by_destination().items()
    }
    new = [route for route in state.sources if route not in known]
    for route in new:
        beat()
        _create_route_topics(state, route, partitions[route.destination_topic])
    parked = {route.parked_topic for route in new}
    for name in state.parked:
        if name in parked:
            prepare_topic(state, build_parked_topic(state, name))
    return state.sources


def _create_route_topics(state: RouteTopics, route: Route, partitions: int) -> None:
    """Create or extend the intermediate and the destination topic of a route, and check them.
    (With `destination.class` there is no destination topic.)
    """
    settings, source = state.settings, state.sources[route]
    source_config = state.get_source_config(source.name)
    intermediate = build_intermediate_topic(state, route)
    creator = TopicCreator.of(state)
    # first: an existing topic shows which configurations the brokers know
    existing_intermediate = state.existing.get(route.intermediate_topic) or creator.create(
        intermediate
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
        creator.create_or_extend(existing_intermediate, intermediate)
    topic_fitness.check_configs(route, source_config, known, copy)


def create_intermediate_topics(settings: Settings, routes: Collection[Route]) -> None:
    """Create those that are missing, and no other topic."""
    state = load_route_topics(settings)
    for route in routes:
        if route.intermediate_topic not in state.existing:
            TopicCreator.of(state).create(build_intermediate_topic(state, route))


def prepare_topic(state: RouteTopics, new: NewTopic, validate_only: bool = False) -> None:
    """Create or extend a topic of the destination."""
    TopicCreator.of(state, validate_only).create_or_extend(state.existing.get(new.topic), new)


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


@dataclass(frozen=True, slots=True)
class TopicCreator:
    """Creates and extends topics of a cluster, each request until it is answered, at most about
    `timeout_s`. With `validate_only` nothing changes: the brokers only validate the requests.
    """

    cluster: Cluster
    client: AdminClient
    timeout_s: float
    validate_only: bool = False

    @classmethod
    def of(cls, state: RouteTopics, validate_only: bool = False) -> TopicCreator:
        """That of the destination."""
        settings = state.settings
        return cls(
            settings.destination_cluster,
            state.destination_admin,
            settings.connect_timeout_s,
            validate_only,
        )

    def create_or_extend(self, existing: Topic | None, new: NewTopic) -> None:
        """Create the topic, or add missing partitions."""
        current = existing or self.create(new)
        if current is None or current.partitions >= new.num_partitions:
            return
        numbers = f"{current.partitions}, then {new.num_partitions}"
        self._log(f"adding partitions to topic {new.topic}: {numbers}")
        more = [NewPartitions(new.topic, new.num_partitions)]
        self._ask(new, self.client.create_partitions, more, KafkaError.INVALID_PARTITIONS)

    def create(self, new: NewTopic) -> Topic | None:
        """Create the topic. If another process was first, return the topic: it has fewer partitions
        than `new` if that process looked at the source before a partition was added there.
        """
        configs = "".join(f", {name}={value}" for name, value in sorted((new.config or {}).items()))
        self._log(f"creating topic {new.topic} with {new.num_partitions} partitions{configs}")
        if self._ask(new, self.client.create_topics, [new], KafkaError.TOPIC_ALREADY_EXISTS):
            return None
        return topics.look_up(self.cluster, self.client, [new.topic], self.timeout_s).get(new.topic)

    def _ask(
        self, new: NewTopic, request: Callable[..., dict[str, Any]], what: list[Any], is_done: int
    ) -> bool:
        """False when the answer is the error code `is_done`: another process was first, or an
        attempt whose answer was lost.
        """
        request_s = min(self.timeout_s, REQUEST_TIMEOUT_S)
        doing = (
            f"creating topic {new.topic} with {new.num_partitions} partitions on the"
            f" {self.cluster.name} cluster"
        )

        def ask_once() -> bool:
            try:
                answers = request(what, validate_only=self.validate_only, request_timeout=request_s)
                answers[new.topic].result()
            except KafkaException as failed:
                if failed.args[0].code() == is_done:
                    return False
                raise
            return True

        return ask_for_change(self.cluster, self.client, doing, self.timeout_s, ask_once)

    def _log(self, line: str) -> None:
        log.log(logging.DEBUG if self.validate_only else logging.INFO, "%s", line)
