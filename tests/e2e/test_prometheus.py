"""Prometheus itself reads configuration and rules, fires the alerts that it should, and has an
answer of a real service for every panel.

`make prometheus` fetches it. That every expression can be parsed and asks for what there is,
tests/unit/project/test_dashboard.py holds everywhere.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Start
from tests.harness.kafka import COPY_S, Clusters, make_records, until
from tests.harness.prometheus import FOLDER, PROMETHEUS, PROMTOOL, Prometheus
from tests.harness.promql import fill_variables, panels, rules
from tests.harness.service import Service, send_signal

RECORDS = 3000
WITHOUT = ("run {{reason}}", "records", "{{candidate}}", "transaction: ", "{{cluster}}: ")
"""What legends of what need not happen begin with: an end of a run, a torn transaction, errors,
failover.
"""
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not (PROMETHEUS and PROMTOOL), reason="there is none: `make prometheus`"),
]


@pytest.mark.parametrize(
    "words",
    [
        ("check", "config", "prometheus.yml"),
        ("check", "rules", "rules.yml", "kaf-relay-names.yml"),
        ("test", "rules", "rules.test.yml"),
    ],
    ids=" ".join,
)
def test_promtool_agrees(words: tuple[str, ...]) -> None:
    """Configuration and rules are Prometheus', and each story of rules.test.yml fires its alerts
    and no others.
    """
    done = subprocess.run(
        [PROMTOOL, *words], cwd=FOLDER, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_a_story() -> None:
    """No alert is left out of rules.test.yml."""
    told = (FOLDER / "rules.test.yml").read_text()
    assert [rule["alert"] for rule in rules() if f'alertname="{rule["alert"]}"' not in told] == []


@pytest.fixture
def watched(
    clusters: Clusters, topic: str, start: Start, tmp_path: Path
) -> Iterator[tuple[Prometheus, Service]]:
    """A service with something to copy, and a Prometheus that scrapes it."""
    clusters.source.create(topic, 2)
    service = start(topic)
    prometheus = Prometheus(tmp_path, f"127.0.0.1:{service.environment['REO_METRICS_PORT']}", "1s")
    yield prometheus, service
    prometheus.end()


def copy_with_one_kill(clusters: Clusters, topic: str, service: Service) -> None:
    """Records flow for some seconds, and stage two is killed once meanwhile."""
    until(lambda: service.http_get("/readyz")[0] == 200, "the service is ready", COPY_S)
    for number in range(0, RECORDS, RECORDS // 6):
        clusters.source.write(topic, make_records(range(number, number + RECORDS // 6), 2))
        if number == RECORDS // 2:
            send_signal(until(lambda: service.find_pid("deduplicator"), "stage two lives"))
        time.sleep(1)
    clusters.wait_for_copy(topic, RECORDS)


def highest_starts(prometheus: Prometheus) -> dict[str, float]:
    """The highest value of the panel of starts, for each stage that it shows."""
    (again,) = [
        fill_variables(target["expr"])
        for panel in panels()
        for target in panel.get("targets", ())
        if target["legendFormat"] == "{{stage}} started again"
    ]
    return {
        sample["metric"]["stage"]: float(sample["value"][1])
        for sample in prometheus.value(f"max_over_time(({again})[15m:1s])")
    }


def test_every_panel_has_data(
    clusters: Clusters, topic: str, watched: tuple[Prometheus, Service]
) -> None:
    """While a service copies, and stage two is killed once, no expression of the dashboard is empty
    but those of what did not happen.

    Then the service ends, and that is noticed.
    """
    prometheus, service = watched
    until(prometheus.scrapes, "Prometheus scrapes the service")
    copy_with_one_kill(clusters, topic, service)
    until(
        lambda: (
            [sample["value"][1] for sample in prometheus.value("sum(reo_frontier_offset)")]
            == [str(RECORDS - 2)]
        ),
        "Prometheus has seen all",
    )
    asked = [
        (panel["title"], target["legendFormat"], fill_variables(target["expr"]))
        for panel in panels()
        for target in panel.get("targets", ())
    ]

    empty: list[str] = []

    def has_data() -> bool:
        empty[:] = [
            f"{title}: {legend}"
            for title, legend, expression in asked
            if not legend.startswith(WITHOUT) and not prometheus.value(expression)
        ]
        return not empty

    until(has_data, "every panel has data", seen_last=empty)
    assert highest_starts(prometheus).get("deduplicator", 0) >= 1, (
        "the panel of starts shows the kill"
    )
    until(
        lambda: (
            [sample["value"][1] for sample in prometheus.value("sum(reo_lag_records)")] == ["0"]
        ),
        "nothing lags behind",
    )
    assert [
        alert for alert in prometheus.ask("alerts")["alerts"] if alert["state"] == "firing"
    ] == []
    service.stop()
    until(
        lambda: (
            "ReoDown"
            in {alert["labels"]["alertname"] for alert in prometheus.ask("alerts")["alerts"]}
        ),
        "the end is noticed",
    )
