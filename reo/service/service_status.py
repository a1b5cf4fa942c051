"""`/status`: the state of the copy as the service itself knows it, with the keys of `reo status
--json`.

Everything comes from the metric files of the service's processes (`reo.service.health`) and from
the supervisor, so it sends no request to a cluster, and works while no cluster answers. A value is
null when only the clusters know it, when it belongs to a stage that runs elsewhere, or when the
process has not reported it yet. `reo status` asks the clusters and knows neither the last error nor
what a process waits for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prometheus_client import CollectorRegistry

from common import topic_rules
from common.routes import TopicPartition
from common.settings import Settings
from reo.service.health import Health

Gauges = dict[tuple[str, ...], float]
STAGES = ("replicator", "deduplicator")
LAGS = ("stage_one", "stage_two", "both")


def build_status(
    settings: Settings,
    stages: Iterable[str],
    registry: CollectorRegistry,
    health: Health,
    last_error: dict[str, Any] | None,
) -> dict[str, Any]:
    """As a JSON object. `last_error` is that of the last process that ended by an error, with the
    keys of `reo.report.convert_error_to_dict`.
    """
    gauges = _read_gauges(registry)
    partitions = [
        _describe_partition(gauges, source, intermediate)
        for source, intermediate in _find_partitions(settings, gauges)
    ]
    lags = {name: _sum_lags([row["lag"][name] for row in partitions]) for name in LAGS}
    stage_one, stage_two = (
        _describe_stage(stage, health) if stage in stages else None for stage in STAGES
    )
    return {
        "application": settings.application,
        "stage_one": stage_one,
        "stage_two": stage_two,
        "progress": _describe_progress(lags["both"]["records"]),
        "group": {"state": None, "members": None},
        "last_error": last_error,
        "would_stop": None,
        "source_undecided": None,
        "undecided": None,
        "partitions": partitions,
        "lag": lags,
        "ready": not health.silent and not health.not_ready,
    }


def _read_gauges(registry: CollectorRegistry) -> Gauges:
    """Values by name, stage (empty for metrics without it), topic and partition."""
    gauges: Gauges = {}
    for family in registry.collect():
        if family.name in (
            "reo_source_end_offset",
            "reo_frontier_offset",
            "reo_lag_records",
            "reo_lag_seconds",
        ):
            for sample in family.samples:
                gauges[
                    family.name,
                    sample.labels.get("stage", ""),
                    sample.labels["topic"],
                    sample.labels["partition"],
                ] = sample.value
    return gauges


def _find_partitions(
    settings: Settings, gauges: Gauges
) -> list[tuple[TopicPartition, TopicPartition]]:
    """The source and intermediate partitions about which a process has reported something, in the
    order of the settings.
    """
    sources = {
        TopicPartition(key[2], int(key[3]))
        for key in gauges
        if key[0] in ("reo_source_end_offset", "reo_frontier_offset")
    }
    routes = topic_rules.build_routes(
        settings.rules, {tp.topic for tp in sources}, settings.intermediate.topic
    )
    return [
        (tp, route.get_intermediate(tp.partition))
        for route in routes
        for tp in sorted(sources)
        if tp.topic == route.source_topic
    ]


def _describe_partition(
    gauges: Gauges, source: TopicPartition, intermediate: TopicPartition
) -> dict[str, Any]:
    def get_value(name: str, tp: TopicPartition, stage: str = "") -> float | None:
        return gauges.get((name, stage, tp.topic, str(tp.partition)))

    stage_one, stage_two = [
        (
            _to_integer(get_value("reo_lag_records", tp, stage)),
            get_value("reo_lag_seconds", tp, stage),
        )
        for tp, stage in ((source, "replicator"), (intermediate, "deduplicator"))
    ]
    last_stable_offset = _to_integer(get_value("reo_source_end_offset", source))
    frontier = _to_integer(get_value("reo_frontier_offset", source))
    seconds = stage_one[1], stage_two[1]
    both = (
        _count_not_copied(stage_one[0], stage_two[0], last_stable_offset, frontier),
        None if None in seconds else max(filter(None, seconds), default=0.0),
    )
    return {
        "topic": source.topic,
        "partition": source.partition,
        "source_end": None,
        "last_stable_offset": last_stable_offset,
        "stage_one_offset": None,
        "frontier": frontier,
        "moved": None,  # a copy of topics that have moved does not start
        "epoch": None,  # a gauge is a float, which is too short for it
        "unread": None,
        "stage_one_wrote_ms": None,
        "lag": {
            name: {"records": records, "seconds": duration}
            for name, (records, duration) in zip(LAGS, (stage_one, stage_two, both), strict=True)
        },
        "rate": {"stage_one": None, "stage_two": None},
    }


def _count_not_copied(
    stage_one_lag: int | None,
    stage_two_lag: int | None,
    last_stable_offset: int | None,
    frontier: int | None,
) -> int | None:
    """Source offsets that are not copied. It is not the sum of both lags: that of stage two counts
    envelopes, among them those that it will drop.
    """
    if stage_one_lag is None or stage_two_lag is None:
        return None
    if stage_two_lag == 0:
        return stage_one_lag  # after the last record there may be transaction markers
    if last_stable_offset is None or frontier is None:
        return None
    return max(stage_one_lag, last_stable_offset - frontier - 1)


def _to_integer(value: float | None) -> int | None:
    return None if value is None else int(value)


def _sum_lags(lags: list[dict[str, Any]]) -> dict[str, Any]:
    """Of several partitions: the sum of the records and the longest time; null when one of them is
    not known.
    """
    records, seconds = ([lag[unit] for lag in lags] for unit in ("records", "seconds"))
    is_known = bool(lags) and None not in records
    return {
        "records": sum(records) if is_known else None,
        "seconds": max(seconds) if lags and None not in seconds else None,
    }


def _describe_stage(stage: str, health: Health) -> str:
    problems = [
        problem
        for problem in (*health.silent, *health.not_ready)
        if problem.startswith(f"{stage} ")
    ]
    return "; ".join(problems) or "works"


def _describe_progress(waiting_records: int | None) -> str:
    if waiting_records is None:
        return "not known yet, or a stage runs elsewhere"
    return f"{waiting_records} records wait" if waiting_records else "all is copied"
