"""`/status` from gauges alone: what is not reported is null, and what a process waits for is said.
With a whole service: tests/e2e/test_metrics_port.py.
"""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Gauge

from common.settings import load
from reo.service.health import Health
from reo.service.service_status import build_status
from tests.unit.common.settings.test_settings import GOOD

BOTH = ("deduplicator", "replicator")
MANY = {name: text for name, text in GOOD.items() if name != "REO_SOURCE_TOPIC"} | {
    "REO_TOPICS": "^a.*=copy-of-all,b=bb",
    "REO_APPLICATION": "many",
}


def registry(**gauges: dict[tuple[str, ...], float]) -> CollectorRegistry:
    """What processes have reported, by metric and labels."""
    made = CollectorRegistry()
    for name, samples in gauges.items():
        gauge = Gauge(
            name,
            name,
            ("stage", "topic", "partition") if "lag" in name else ("topic", "partition"),
            registry=made,
        )
        for values, number in samples.items():
            gauge.labels(*values).set(number)
    return made


def status(
    made: CollectorRegistry,
    health: Health,
    stages: tuple[str, ...] = BOTH,
    environment: dict[str, str] = GOOD,
) -> dict[str, Any]:
    """Of a service with these stages."""
    return build_status(load(environment), stages, made, health, None)


def test_nothing_is_known_at_the_start() -> None:
    """No partition, and each process waits."""
    said = status(registry(), Health([], ["replicator 0 is not working: it waits for its start"]))
    assert said["partitions"] == []
    assert said["lag"]["both"] == {"records": None, "seconds": None}
    assert (said["stage_one"], said["stage_two"]) == (
        "replicator 0 is not working: it waits for its start",
        "works",
    )
    assert said["ready"] is False


def test_a_stage_that_runs_elsewhere_is_null() -> None:
    """Stage one alone knows the source and its own lag, and not whether all is copied."""
    said = status(
        registry(
            reo_source_end_offset={("orders", "0"): 70},
            reo_lag_records={("replicator", "orders", "0"): 0},
            reo_lag_seconds={("replicator", "orders", "0"): 0},
        ),
        Health([], []),
        ("replicator",),
    )
    assert (said["stage_one"], said["stage_two"]) == ("works", None)
    (row,) = said["partitions"]
    assert (row["last_stable_offset"], row["frontier"]) == (70, None)
    unknown = {"records": None, "seconds": None}
    assert row["lag"] == {
        "stage_one": {"records": 0, "seconds": 0},
        "stage_two": unknown,
        "both": unknown,
    }
    assert said["lag"]["stage_one"] == {"records": 0, "seconds": 0}
    assert said["progress"] == "not known yet, or a stage runs elsewhere"


def test_lags_of_many_topics_are_added() -> None:
    """Stage two counts at the intermediate topic: each route's own is found, also of a pattern
    whose topics share a destination. What is not copied is counted at the source.
    """
    ends = {("aa", "0"): 20.0, ("ab", "0"): 30.0, ("b", "0"): 40.0}
    one = {("replicator", topic, "0"): number for number, (topic, _) in enumerate(ends, 1)}
    two = {
        ("deduplicator", topic, "0"): 10.0
        for topic in ("copy-of-all-aa-proxy", "copy-of-all-ab-proxy", "bb-proxy")
    }
    said = status(
        registry(
            reo_source_end_offset=ends,
            reo_frontier_offset=dict.fromkeys(ends, 5.0),
            reo_lag_records=one | two,
            reo_lag_seconds=one | two,
        ),
        Health([], []),
        environment=MANY,
    )
    assert [(row["topic"], row["lag"]["both"]["records"]) for row in said["partitions"]] == [
        ("aa", 14),
        ("ab", 24),
        ("b", 34),
    ]
    assert said["lag"] == {
        "stage_one": {"records": 6, "seconds": 3},
        "stage_two": {"records": 30, "seconds": 10},
        "both": {"records": 72, "seconds": 10},
    }
    assert said["progress"] == "72 records wait"
