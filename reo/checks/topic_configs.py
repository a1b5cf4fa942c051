"""Compares the configurations of the topics of each route (record size, retention, timestamps), and
looks at their replicas and at raw producer options.

A topic that does not exist yet is created to fit (`common.kafka.copied_configs`); these checks are
about existing topics. They also list the differences that `reo topics` would remove.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from confluent_kafka import KafkaException, TopicCollection

from common.errors import ClusterUnreachable, TopicsUnfit
from common.kafka import copied_configs, topic_fitness
from common.kafka.client_errors import translate
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S
from common.kafka.copied_configs import LIMIT, Entries
from common.kafka.route_topics import RouteTopics
from common.routes import Route
from common.settings import destination_kind
from reo.checks.clusters import list_leaderless
from reo.checks.findings import Finding, report_failure, report_ok, report_warning
from reo.migration.config_drift import ConfigDrift

DAY_MS = 86_400_000
RETENTION = {
    "retention.ms": (
        "records are never deleted for their age",
        "records older than {} are deleted",
    ),
    "retention.bytes": (
        "records are never deleted for their size",
        "records before the last {} bytes of a partition are deleted",
    ),
}
"""What is said where there is no limit, and where there is one."""
BOUNDS = (
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
    "message.timestamp.difference.max.ms",
)
NOT_CONFIGS = ("topic", "partitions")
CHECKED_ABOVE = (LIMIT, *RETENTION, "message.timestamp.type", "min.insync.replicas")
"""Configurations of a destination topic that other checks cover."""
PRODUCERS = (
    ("intermediate.producer_options", "max.request.size"),
    ("intermediate.producer_options", "buffer.memory"),
    ("destination.producer_options", "message.max.bytes"),
)
"""Raw options that limit the size of a record."""


def check_topic_settings(state: RouteTopics) -> Iterator[Finding]:
    """All checks, route by route."""
    for route in state.sources:
        yield from _check_sizes(state, route)
        if not destination_kind.is_outside_kafka(state.settings):
            yield from _check_retention(state, route)
            yield from _check_timestamps(state, route)
    copies = {route.destination_topic for route in state.sources}
    names = [
        name
        for route in state.sources
        for name in (route.destination_topic, route.intermediate_topic)
    ]
    for name in dict.fromkeys(name for name in names if name in state.existing):
        yield from _check_replicas(state, name, is_disposable=name not in copies)
    for row in ConfigDrift(state.settings).differences:
        is_checked = row.topic in copies and row.what in CHECKED_ABOVE
        if row.then is not None and row.what not in NOT_CONFIGS and not is_checked:
            yield report_warning(
                f"topic {row.topic}",
                f"{row.what}={row.now}, and {row.then} is expected: {row.why}",
                "`reo topics` lists all differences, `reo topics --apply` removes them",
            )


def _check_sizes(state: RouteTopics, route: Route) -> Iterator[Finding]:
    """`max.message.bytes` of all topics, and the size limits of the producers."""
    name, about = route.destination_topic, f"record size of {route.source_topic}"
    intermediate, copy = state.find_config(route.intermediate_topic), state.find_config(name)
    limit = copied_configs.get_max_message_bytes(state.get_source_config(route.source_topic))
    errors = list(topic_fitness.find_unfit_configs(route, limit, intermediate, copy))
    yield from (report_failure(f"topic settings of {name}", error) for error in errors)
    if copy is not None and copied_configs.get_max_message_bytes(copy) < limit:
        yield report_warning(
            about,
            f"the source takes batches of up to {limit} bytes, {name} of up to"
            f" {copied_configs.get_max_message_bytes(copy)}: a larger record stops the copy (exit"
            " code 27)",
            f"set max.message.bytes={limit} on {name}; `reo topics --apply` does",
        )
    elif not errors:
        # a record that is stored compressed at the source can be too large where it is not
        size = (
            "as the source stores them"
            if _is_compressed_again(state)
            else "uncompressed (producer.compression_type is none): a record that its producer has"
            " compressed, and that is larger without, stops the copy (exit code 27)"
        )
        which = "both" if destination_kind.is_outside_kafka(state.settings) else "all three"
        yield report_ok(about, f"{which} topics take batches of up to {limit} bytes, {size}")
    for table, option in PRODUCERS:
        value = state.settings.get_options(table).get(option, "")
        if value.isdigit() and int(value) < limit:
            yield report_warning(
                about,
                f"{table} has {option}={value}, and the source takes batches of up to {limit}"
                " bytes: a larger record stops the copy",
                f"remove {option}, or raise it",
            )


def _is_compressed_again(state: RouteTopics) -> bool:
    return state.settings.producer.compression_type != "none"


def _check_retention(state: RouteTopics, route: Route) -> Iterator[Finding]:
    """What is deleted at the destination, by age and by size. The copy keeps the source's
    timestamps, so older records are deleted soon after they arrive; and what the source stores
    compressed has more bytes there if it is not.
    """
    source = state.get_source_config(route.source_topic)
    copy = state.find_config(route.destination_topic)
    about = f"retention of {route.destination_topic}"
    own, there, right = copied_configs.list_own_configs(source), copy or source, []
    for name in RETENTION:
        at_source, source_limit = _describe_retention(name, source)
        text, limit = _describe_retention(name, there)
        if copy is None and name not in own and "delete" in own.get("cleanup.policy", "delete"):
            right.append(
                f"{name} is the destination cluster's default (at the source {at_source}; set it on"
                " the source topic to take it over)"
            )
        elif limit is not None and (source_limit is None or limit < source_limit):
            yield report_warning(
                about,
                f"{text}, soon after they arrive; at the source {at_source}",
                f"set {name}={-1 if source_limit is None else source_limit} on"
                f" {route.destination_topic}; `reo topics --apply` does if the source topic has it",
            )
        elif limit is not None and name == "retention.bytes" and _has_more_bytes(state, there):
            yield report_warning(
                about,
                f"{text}, and they are written uncompressed (producer.compression_type is none):"
                " where the source's producers compress, more is deleted than at the source",
                f"set producer.compression_type, or a larger {name}",
            )
        else:
            right.append(f"{text}; at the source {at_source}" if text != at_source else text)
    if right:
        yield report_ok(about, "; ".join(right))
    if copy and copied_configs.is_compacted(source) and not copied_configs.is_compacted(copy):
        yield report_warning(
            about,
            "the source topic is compacted, the copy is not: it grows without limit",
            "set cleanup.policy; `reo topics --apply` does",
        )


def _has_more_bytes(state: RouteTopics, entries: Entries) -> bool:
    """Whether a destination topic stores uncompressed what is compressed at the source."""
    codec = str(entries["compression.type"].value)
    return not _is_compressed_again(state) and codec in ("producer", "uncompressed")


def _describe_retention(name: str, entries: Entries) -> tuple[str, int | None]:
    """As text, and how long records are kept, in ms, or how many bytes of a partition; None when
    nothing is deleted for that.
    """
    unlimited, limited = RETENTION[name]
    limit = int(entries[name].value)
    if limit < 0 or "delete" not in str(entries["cleanup.policy"].value):
        return unlimited, None
    if name == "retention.bytes":
        return limited.format(limit), limit
    days = f"{limit / DAY_MS:.3g} days"
    return limited.format(days if limit >= DAY_MS else f"{limit / 1000:.0f} s"), limit


def _check_timestamps(state: RouteTopics, route: Route) -> Iterator[Finding]:
    """Timestamps that the source accepted and the destination would refuse."""
    source = state.get_source_config(route.source_topic)
    copy = state.find_config(route.destination_topic)
    for name in BOUNDS:
        if copy is None or name not in copy or name not in source:
            continue
        copy_ms, source_ms = int(copy[name].value), int(source[name].value)
        if copy_ms < source_ms or (name != BOUNDS[1] and copy_ms < 2**63 - 1):
            yield report_warning(
                f"timestamps of {route.destination_topic}",
                f"{name}={copy_ms}: a record whose timestamp is further from the clock when it is"
                f" copied stops the copy (exit code 27); the source has {source_ms}",
                f"remove {name} from the topic, or raise it",
            )


def _check_replicas(state: RouteTopics, name: str, is_disposable: bool) -> Iterator[Finding]:
    """Whether every partition can be written to, and what is lost with a broker. What an
    intermediate topic loses is read again from the source.
    """
    about = f"replicas of {name}"
    try:
        answers = state.destination_admin.describe_topics(
            TopicCollection([name]), request_timeout=REQUEST_TIMEOUT_S
        )
        partitions: list[Any] = answers[name].result().partitions
    except KafkaException as failure:
        yield report_failure(about, translate(failure.args[0], f"describing {name}"))
        return
    min_in_sync = int(state.get_config(name)["min.insync.replicas"].value)
    replicas = min(len(partition.replicas) for partition in partitions)
    in_sync = min(len(partition.isr) for partition in partitions)
    leaderless = list_leaderless(partitions)
    state_text = f"{replicas}, {in_sync} in sync, min.insync.replicas={min_in_sync}"
    if min_in_sync > replicas:
        yield report_failure(
            about,
            TopicsUnfit(
                f"{name} has min.insync.replicas={min_in_sync} and {replicas} replicas: nothing can"
                " be written to it with acks=all. Lower one or raise the other"
            ),
        )
    elif leaderless or in_sync < min_in_sync:
        yield report_failure(
            about,
            ClusterUnreachable(
                f"{name} cannot be written to now: {len(leaderless)} partitions have no leader, and"
                f" of {replicas} replicas {in_sync} are in sync, while min.insync.replicas is"
                f" {min_in_sync}. Start the missing brokers"
            ),
        )
    elif is_disposable:
        yield report_ok(about, f"{state_text}; what is lost there is read again from the source")
    elif replicas > 1 and min_in_sync == 1:
        yield report_warning(
            about,
            f"{replicas}, but one in-sync replica is enough (min.insync.replicas=1): when its"
            " broker is lost, so are committed records",
            "set min.insync.replicas to 2 when there are 3 replicas",
        )
    elif replicas == 1:
        yield report_ok(about, "1: when its broker is lost, so is the topic")
    else:
        yield report_ok(about, state_text)
