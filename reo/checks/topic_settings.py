"""How the topics of each route are set, held against each other: the largest record on all three, retention, timestamps, replicas, raw producer options.

A topic that is still to be made is made to fit (`common.topic_config`); what is said here is about those that are there. What `reo topics` would make
alike is named too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from confluent_kafka import KafkaException, TopicCollection

from common import tables, topic_config, topics
from common.errors import ClusterUnreachable, TopicsUnfit
from common.kafka_clients import REQUEST_TIMEOUT_S, translate
from common.routes import Route
from common.topic_config import LIMIT, Entries
from reo.checks.findings import Finding, failed, ok, warning
from reo.checks.topics import Stand
from reo.config_drift import Alike

DAY_MS = 86_400_000
BOUNDS = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms", "message.timestamp.difference.max.ms")
MADE = ("topic", "partitions")
SAID_ABOVE = (LIMIT, "retention.ms", "message.timestamp.type", "min.insync.replicas")
"""Of a destination topic."""
PRODUCERS = (("intermediate.producer_options", "max.request.size"), ("intermediate.producer_options", "buffer.memory"),
             ("destination.producer_options", "message.max.bytes"))
"""Raw options that bound a record."""


def check(found: Stand) -> Iterator[Finding]:
    """All of it, route by route."""
    for route in found.sources:
        yield from _sizes(found, route)
        if not tables.named(found.settings):
            yield from _retention(found, route)
            yield from _timestamps(found, route)
    for name in dict.fromkeys(name for route in found.sources for name in (route.destination_topic, route.intermediate_topic) if name in found.existing):
        yield from _replicas(found, name)
    copies = {route.destination_topic for route in found.sources}
    for row in Alike(found.settings).rows:
        if row.then is not None and row.what not in MADE and not (row.topic in copies and row.what in SAID_ABOVE):
            yield warning(f"topic {row.topic}", f"{row.what}={row.now}, and {row.then} is wanted: {row.why}",
                          "`reo topics` shows all that is not alike, `reo topics --apply` changes it")


def _sizes(found: Stand, route: Route) -> Iterator[Finding]:
    """`max.message.bytes` of all topics, and what the producers were told."""
    source, between, copy = found.entries_of_source(route.source_topic), found.entries(route.intermediate_topic), found.entries(route.destination_topic)
    limit, about = topic_config.limit(source), f"record size of {route.source_topic}"
    wrong = list(topics.unfit(route, limit, between, copy))
    yield from (failed(f"topic settings of {route.destination_topic}", unfit) for unfit in wrong)
    if copy is not None and topic_config.limit(copy) < limit:
        yield warning(about, f"the source takes batches of up to {limit} bytes, {route.destination_topic} of up to {topic_config.limit(copy)}: a larger record "
                      "stops the copy (exit code 27)", f"set max.message.bytes={limit} on {route.destination_topic}; `reo topics --apply` does")
    elif not wrong:
        yield ok(about, f"up to {limit} bytes, which {'both' if tables.named(found.settings) else 'all three'} topics take")
    for table, option in PRODUCERS:
        given = found.settings.options(table).get(option, "")
        if given.isdigit() and int(given) < limit:
            yield warning(about, f"{table} has {option}={given}, and the source takes batches of up to {limit} bytes: a larger record stops the copy",
                          f"take {option} away, or raise it")


def _retention(found: Stand, route: Route) -> Iterator[Finding]:
    """Restored timestamps meet the destination's retention: what is older is deleted soon after it arrives."""
    source, copy = found.entries_of_source(route.source_topic), found.entries(route.destination_topic)
    about = f"retention of {route.destination_topic}"
    kept = _kept_ms(source)
    if copy is None:
        if "retention.ms" in topic_config.own(source) or kept is None:
            yield ok(about, f"as the source's: {_days(kept)}")
        else:
            yield ok(about, f"the destination cluster's default; the source cluster's is {_days(kept)}. Set retention.ms on the source topic to take it over")
        return
    here = _kept_ms(copy)
    if here is not None and (kept is None or here < kept):
        yield warning(about, f"records older than {_days(here)} are deleted there soon after they arrive, and the source keeps them for {_days(kept)}",
                      f"set retention.ms={-1 if kept is None else kept} on {route.destination_topic}; `reo topics --apply` does, where the source topic has it")
    else:
        yield ok(about, f"{_days(here)}, the source's is {_days(kept)}")
    if "compact" in str(source["cleanup.policy"].value) and "compact" not in str(copy["cleanup.policy"].value):
        yield warning(about, "the source topic is compacted, the copy is not: it grows for ever", "set cleanup.policy; `reo topics --apply` does")


def _kept_ms(entries: Entries) -> int | None:
    """How long records are kept; None for ever."""
    kept = int(entries["retention.ms"].value)
    return None if kept < 0 or "delete" not in str(entries["cleanup.policy"].value) else kept


def _days(milliseconds: int | None) -> str:
    if milliseconds is None:
        return "for ever"
    return f"{milliseconds / DAY_MS:.3g} days" if milliseconds >= DAY_MS else f"{milliseconds / 1000:.0f} s"


def _timestamps(found: Stand, route: Route) -> Iterator[Finding]:
    """Timestamps that the source took and the destination would refuse."""
    source, copy = found.entries_of_source(route.source_topic), found.entries(route.destination_topic)
    for name in BOUNDS:
        if copy is None or name not in copy or name not in source:
            continue
        here, there = int(copy[name].value), int(source[name].value)
        if here < there or (name != BOUNDS[1] and here < 2**63 - 1):
            yield warning(f"timestamps of {route.destination_topic}", f"{name}={here}: a record that is further from the clock when it is copied stops the "
                          f"copy (exit code 27); the source has {there}", f"take {name} away from the topic, or widen it")


def _replicas(found: Stand, name: str) -> Iterator[Finding]:
    """Whether every partition can be written to, and what the loss of a broker costs."""
    about = f"replicas of {name}"
    try:
        answers = found.destination_admin.describe_topics(TopicCollection([name]), request_timeout=REQUEST_TIMEOUT_S)
        partitions: list[Any] = answers[name].result().partitions
    except KafkaException as failure:
        yield failed(about, translate(failure.args[0], f"describing {name}"))
        return
    entries = found.entries(name)
    least = int(entries["min.insync.replicas"].value) if entries else 1
    fewest, in_sync = min(len(partition.replicas) for partition in partitions), min(len(partition.isr) for partition in partitions)
    leaderless = [partition.id for partition in partitions if partition.leader is None or partition.leader.id < 0]
    if least > fewest:
        yield failed(about, TopicsUnfit(f"{name} has min.insync.replicas={least} and {fewest} replicas: nothing can be written to it with acks=all. "
                                        "Lower the one or raise the other"))
    elif leaderless or in_sync < least:
        yield failed(about, ClusterUnreachable(f"{name} cannot be written to now: {len(leaderless)} partitions have no leader, and of {fewest} replicas "
                                               f"{in_sync} are in sync, where min.insync.replicas is {least}. Start the brokers that are missing"))
    elif fewest > 1 and least == 1:
        yield warning(about, f"{fewest}, of which one that is in sync is enough (min.insync.replicas=1): when that one is lost, so are committed records",
                      "set min.insync.replicas to 2 where there are 3 replicas")
    elif fewest == 1:
        yield ok(about, "1: with its broker the topic is gone")
    else:
        yield ok(about, f"{fewest}, {in_sync} in sync, min.insync.replicas={least}")
