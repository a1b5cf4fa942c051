"""The topics of each route, as a start would find them: do they exist, is there a cycle, do they
have the partitions, and what would be created.

It calls the functions of a start (`topic_creation`) one by one, so that every error is
reported, not only the first. Topics that would be created are sent to the brokers with
`validate_only`: the brokers apply their policies and limits, and change nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from confluent_kafka.admin import NewTopic

from common.errors import ReoError, TopicsUnfit
from common.kafka import topic_creation, topic_fitness
from common.kafka.partition_offsets import COMMIT_PARTITIONS_MAX
from common.kafka.route_topics import RouteTopics
from common.routes import Route
from common.settings import destination_kind
from reo.checks.findings import Finding, report_failure, report_ok

UNKNOWN_CONFIG = re.compile(r"Unknown topic config name: ([\w.]+)")
"""What brokers answer, and nothing else tells (`LogConfig.validateNames`)."""
BATCH_BYTES_MAX = 1_048_588
"""Kafka's default of message.max.bytes."""
COMMIT_BYTES_MAX = COMMIT_PARTITIONS_MAX * 700
"""A frontier has up to 450 bytes, and names 249."""
MEMBER_BYTES = 400
"""Ids, client, host and timeouts of one member, at most."""
WORKERS_CHECKED_MAX = 1000


def check_sources(state: RouteTopics) -> Iterator[Finding]:
    """Which topics are copied, and where to."""
    if not state.sources:
        yield report_ok(
            "source topics", "none matches the patterns now: the service would wait for one"
        )
    for route, source in state.sources.items():
        yield report_ok(
            f"source topic {source.name}{route.partitions}",
            f"{source.partitions} partitions, copied to {route.destination_topic} through"
            f" {route.intermediate_topic}",
        )


def check_topics(state: RouteTopics) -> Iterator[Finding]:
    """Cycles, partitions, and what would be created."""
    cycles = list(topic_fitness.find_cycles(state.sources, state.existing))
    yield from (report_failure("cycle", cycle) for cycle in cycles)
    if not cycles:
        yield report_ok("cycle", "no source is a topic to which this service writes")
    for overlap in topic_fitness.find_overlaps(state.sources, state.names):
        yield report_failure("partition range", overlap)
    unknown_configs: set[str] = set()
    for name, routes in state.group_by_destination().items():
        try:
            partitions = topic_fitness.count_partitions(name, routes, state.existing)
        except ReoError as error:
            yield report_failure(f"topic {name}", error)
            continue
        if not destination_kind.is_outside_kafka(state.settings):
            yield _check_copy(state, next(iter(routes)), partitions, unknown_configs)
        for route in routes:
            yield _check_creation(state, topic_creation.build_intermediate_topic(state, route))
    for name in state.parked:
        yield _check_creation(state, topic_creation.build_parked_topic(state, name))


def check_group_size(state: RouteTopics, batch_bytes_max: int) -> Iterator[Finding]:
    """How many workers the group can have, and partitions each. The coordinator writes a group as
    one record, with the topics of each member and its partitions; if that
    is too large, nobody gets a partition, and only the broker's log says so. `batch_bytes_max` is
    what __consumer_offsets takes, by the brokers' default for topics.
    """
    about, settings = "group size", state.settings
    if batch_bytes_max < COMMIT_BYTES_MAX:
        yield report_failure(
            about,
            TopicsUnfit(
                f"the destination's message.max.bytes is {batch_bytes_max}, and one commit of"
                f" {COMMIT_PARTITIONS_MAX} partitions has up to {COMMIT_BYTES_MAX}: raise it, or"
                " max.message.bytes of __consumer_offsets"
            ),
        )
        return
    sizes = {route.intermediate_topic: source.partitions for route, source in state.sources.items()}
    partitions, workers = sum(sizes.values()), settings.deduplicator.workers
    workers_max = 0
    while (
        workers_max < WORKERS_CHECKED_MAX
        and _count_group_bytes(sizes, workers_max + 1) <= batch_bytes_max
    ):
        workers_max += 1
    if workers_max < workers:
        yield report_failure(
            about,
            TopicsUnfit(
                f"group {settings.application} would have {len(sizes)} topics, {partitions}"
                f" partitions and {workers} workers, and the destination's message.max.bytes has"
                f" room for {workers_max} workers: lower deduplicator.workers, or divide the topics"
                " between services with an application each"
            ),
        )
    else:
        more = "more than " if workers_max == WORKERS_CHECKED_MAX else ""
        yield report_ok(
            about,
            f"{partitions} partitions: there is room for {more}{workers_max} workers, each with any"
            " number of partitions",
        )


def _count_group_bytes(partitions: Mapping[str, int], workers: int) -> int:
    """Of the record of a group: with each member its ids, its topics (2 bytes of length and
    the name) and, for each topic of which it has partitions, the same again, a count and 4 bytes a
    partition (GroupMetadataValue, ConsumerProtocolAssignment).
    """
    return workers * (MEMBER_BYTES + sum(2 + len(topic) for topic in partitions)) + sum(
        min(workers, count) * (6 + len(topic)) + 4 * count for topic, count in partitions.items()
    )


def _check_copy(
    state: RouteTopics, route: Route, partitions: int, unknown_configs: set[str]
) -> Finding:
    """A destination topic. Any existing topic tells which topic configurations its brokers know;
    while there is none, they refuse one after the other that they do not know: these are added to
    `unknown_configs`.
    """
    while True:
        known = (
            state.get_config(min(state.existing))
            if state.existing
            else {
                name: entry
                for name, entry in state.get_source_config(route.source_topic).items()
                if name not in unknown_configs
            }
        )
        new_topic = topic_creation.build_destination_topic(state, route, partitions, known)
        finding = _check_creation(state, new_topic)
        unknown = UNKNOWN_CONFIG.search(finding.seen)
        if unknown is None or unknown[1] not in (new_topic.config or {}):
            return finding
        unknown_configs.add(unknown[1])


def _check_creation(state: RouteTopics, new_topic: NewTopic) -> Finding:
    """What a start would do about one destination topic; its brokers validate the request."""
    about, existing = f"topic {new_topic.topic}", state.existing.get(new_topic.topic)
    try:
        topic_creation.prepare_topic(state, new_topic, validate_only=True)
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
