"""Settings that are valid one by one and not together, like `source.topic` beside `topics`."""

from __future__ import annotations

from collections.abc import Container, Iterator

from common import filters, topic_rules
from common.settings import (
    client_options,
    clusters,
    destination_kind,
    spark_options,
    sync_checks,
)
from common.settings.names_in_messages import find_names, spell
from common.settings.setting_index import SETTINGS
from common.settings.settings import Settings
from common.settings.settings_sources import RawSettings
from common.settings.source_candidate_settings import build_candidate_setting_name

ONE_TOPIC = ("source.topic", "destination.topic", "intermediate.topic")
"""The settings of the one-topic form; `topics` is the other."""


def spell_contradictions(settings: Settings, raw: RawSettings) -> Iterator[str]:
    """What contradicts itself, but for what only follows from a setting that is wrong by itself."""
    for error in dict.fromkeys(_find_contradictions(settings, raw.invalid)):
        if raw.invalid.isdisjoint(find_names(error)):
            yield spell(error, raw.values, bool(raw.files))


def _find_contradictions(settings: Settings, wrong: Container[str]) -> Iterator[str]:
    """One message for each, with the settings by their dotted names. What the topics' names
    contradict is unknown when one of them is `wrong`.
    """
    if not any(name in wrong for name in (*ONE_TOPIC, "topics")):
        yield from _find_wrong_routes(settings)
    for name in client_options.OPTION_TABLES:
        yield from client_options.find_errors(
            name, settings.get_options(name), settings.allow_unsafe_options
        )
    for cluster in (*settings.sources, settings.destination_cluster):
        has_own = (
            any(settings.list_own_settings(cluster.number).values()) if cluster.number else False
        )
        yield from cluster.security.find_errors(
            build_candidate_setting_name(cluster.number, "") if has_own else f"{cluster.name}."
        )
    yield from _find_unused_candidates(settings)
    for cluster in (*settings.sources, settings.destination_cluster):
        yield from clusters.find_address_errors(
            f"{cluster.name}.bootstrap_servers", cluster.bootstrap_servers
        )
    appends = settings.deduplicator.without_frontier == "append"
    yield from clusters.find_errors(
        [cluster.bootstrap_servers for cluster in settings.sources],
        settings.failover,
        settings.rules,
        appends,
    )
    if settings.source.backoff_min_ms > settings.source.backoff_max_ms:
        yield "source.backoff_min_ms is more than source.backoff_max_ms"
    yield from filters.find_errors(settings)
    yield from destination_kind.find_errors(settings)
    yield from sync_checks.find_errors(settings)
    yield from spark_options.find_errors(
        settings.replicator.master, settings.replicator.spark_options
    )
    if settings.deduplicator.session_timeout_ms > settings.deduplicator.transaction_timeout_ms:
        yield (
            "deduplicator.session_timeout_ms is longer than deduplicator.transaction_timeout_ms:"
            " the partitions of a dead worker would wait after its open transaction has ended. Set"
            " it to at most deduplicator.transaction_timeout_ms"
        )


def _find_unused_candidates(settings: Settings) -> Iterator[str]:
    """Settings of single candidates where there are no such candidates."""
    for setting in SETTINGS:
        if (
            setting.candidate
            and settings.values[setting.name]
            and (not settings.failover or setting.candidate > len(settings.sources))
        ):
            reason = (
                "source.mode is single"
                if not settings.failover
                else f"source.bootstrap_servers names {len(settings.sources)} clusters"
            )
            yield f"{setting.name} would not be used: {reason}"


def _find_wrong_routes(settings: Settings) -> Iterator[str]:
    """Errors in the names alone; all others need the clusters' answers (`topic_fitness`)."""
    many = bool(settings.topics_)
    set_names = [name for name in ONE_TOPIC if settings.values[name]]
    if many and set_names:
        yield f"topics and {', '.join(set_names)} contradict each other: several topics, or one"
    if many and not settings.values["application"]:
        yield (
            "application is missing: with several topics it has no default, and the frontiers of"
            " all of them are kept under it"
        )
    if many:
        yield from (f"topics: {reason}" for reason in topic_rules.find_errors(settings.rules))
        return
    names = dict(
        zip(
            ONE_TOPIC,
            (settings.source_topic, settings.destination_topic, settings.intermediate_topic),
            strict=True,
        )
    )
    yield from topic_rules.list_name_errors(
        names,
        set_names,
        settings.destination.bootstrap_servers
        in [cluster.bootstrap_servers for cluster in settings.sources],
    )
