"""`/status`: the state of the copy as the service itself knows it, with the keys of `reo status
--json`.

Everything comes from the metric files of the service's processes and from the supervisor, so it
works while no cluster answers. A value is null when only the clusters know it, when it belongs to a
stage that runs elsewhere, or when the process has not reported it yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prometheus_client import CollectorRegistry

from common import topic_rules
from common.route_states import EXCEPT_HALTED, RouteState
from common.routes import TopicPartition
from common.settings import Settings
from reo.service.health import Health, find_halted, read_values

Gauges = dict[tuple[str, ...], float]
GAUGES = ("reo_source_end_offset", "reo_frontier_offset", "reo_lag_records", "reo_lag_seconds")
LAGS = ("stage_one", "stage_two", "both")
OF_THE_CLUSTERS: dict[str, None] = dict.fromkeys(
    (
        "source_end",
        "stage_one_offset",
        "destination_gone",
        "moved",
        "epoch",
        "unread",
        "stage_one_wrote_ms",
    )
)
"""What of a partition only the clusters know; a gauge is a float, too short for an epoch."""


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
    gauges = read_values(registry, GAUGES, "stage", "topic", "partition")
    partitions = [
        _describe_partition(gauges, source, intermediate)
        for source, intermediate in _find_partitions(settings, gauges)
    ]
    lags = {name: _sum_lags([row["lag"][name] for row in partitions]) for name in LAGS}
    waiting = lags["both"]["records"]
    halted = find_halted(registry)
    return {
        "application": settings.application,
        "stage_one": _describe_stage("replicator", health) if "replicator" in stages else None,
        "stage_two": _describe_stage("deduplicator", health) if "deduplicator" in stages else None,
        "progress": (
            "not known yet, or a stage runs elsewhere"
            if waiting is None
            else f"{waiting} records wait"
            if waiting
            else f"all is copied{EXCEPT_HALTED if halted else ''}"
        ),
        "group": {"state": None, "members": None},
        "last_error": last_error,
        **dict.fromkeys(("would_stop", "source_undecided", "undecided")),
        "halted": {
            topic: {**dict.fromkeys(RouteState._fields), "kind": kind}
            for topic, kind in halted.items()
        },
        "partitions": partitions,
        "lag": lags,
        "ready": not health.silent and not health.not_ready,
    }


def _find_partitions(
    settings: Settings, gauges: Gauges
) -> list[tuple[TopicPartition, TopicPartition]]:
    """The source and intermediate partitions about which a process has reported something, in the
    order of the settings.
    """
    sources = {
        TopicPartition(topic, int(partition))
        for name, _, topic, partition in gauges
        if name in ("reo_source_end_offset", "reo_frontier_offset")
    }
    routes = topic_rules.build_routes(
        settings.rules, {tp.topic for tp in sources}, settings.intermediate.topic
    )
    return [
        (tp, route.find_intermediate(tp))
        for route in routes
        for tp in sorted(sources)
        if tp.topic == route.source_topic
    ]


def _describe_partition(
    gauges: Gauges, source: TopicPartition, intermediate: TopicPartition
) -> dict[str, Any]:
    def get_value(name: str, tp: TopicPartition, stage: str = "") -> float | None:
        return gauges.get((name, stage, tp.topic, str(tp.partition)))

    def get_integer(name: str, tp: TopicPartition, stage: str = "") -> int | None:
        value = get_value(name, tp, stage)
        return None if value is None else int(value)

    stage_one, stage_two = (
        {
            "records": get_integer("reo_lag_records", tp, stage),
            "seconds": get_value("reo_lag_seconds", tp, stage),
        }
        for tp, stage in ((source, "replicator"), (intermediate, "deduplicator"))
    )
    end = get_integer("reo_source_end_offset", source)
    frontier = get_integer("reo_frontier_offset", source)
    # not the sum of both: that of stage two counts envelopes, among them those that it will drop
    records = stage_one["records"]
    if records is None or stage_two["records"] is None:
        records = None
    elif stage_two["records"]:  # else after the last record there may be transaction markers
        records = None if end is None or frontier is None else max(records, end - frontier - 1)
    longest = _sum_lags([stage_one, stage_two])["seconds"]
    lags = (stage_one, stage_two, {"records": records, "seconds": longest})
    return {
        **source._asdict(),
        **OF_THE_CLUSTERS,
        "last_stable_offset": end,
        "frontier": frontier,
        "lag": dict(zip(LAGS, lags, strict=True)),
        "rate": {"stage_one": None, "stage_two": None},
    }


def _sum_lags(lags: list[dict[str, Any]]) -> dict[str, Any]:
    """Of several partitions: the sum of the records and the longest time; null when one of them is
    not known.
    """
    records, seconds = ([lag[unit] for lag in lags] for unit in ("records", "seconds"))
    return {
        "records": sum(records) if lags and None not in records else None,
        "seconds": max(seconds) if lags and None not in seconds else None,
    }


def _describe_stage(stage: str, health: Health) -> str:
    problems = [
        text for text in (*health.silent, *health.not_ready) if text.startswith(f"{stage} ")
    ]
    return "; ".join(problems) or "works"
