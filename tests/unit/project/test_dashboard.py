"""The dashboard, the alerts and the local stack speak of what the service has, and of one another's
names.
"""

from __future__ import annotations

import json
import re
from typing import Any, get_args

import pytest
import yaml

from common import metrics
from common.settings import load
from common.settings.schema import BY_NAME
from replicator.runs.end_reasons import NEXT, Event
from tests.harness.kafka import ROOT
from tests.harness.promql import DASHBOARD, at_a_glance, list_queries, panels, problems, rules
from tools.reference import chart

RUNBOOK = ROOT / "docs" / "how-to" / "alerts.md"
COMPOSE = ROOT / "docker-compose.yml"


def compose() -> dict[str, Any]:
    """The services of docker-compose.yml."""
    return dict(yaml.safe_load(COMPOSE.read_text())["services"])


def mounts(service: str) -> dict[str, str]:
    """By folder in the container, the folder here."""
    return {
        inside: here
        for here, inside, _ in (volume.split(":") for volume in compose()[service]["volumes"])
    }


@pytest.mark.parametrize(
    ("where", "expression", "text"), list_queries(), ids=[where for where, *_ in list_queries()]
)
def test_every_expression_asks_for_what_there_is(where: str, expression: str, text: str) -> None:
    """It can be parsed; its metrics, their labels and the fixed values of these are the code's; so
    are the labels in legends and messages.
    """
    assert problems(expression, text) == [], where


@pytest.mark.parametrize(
    ("expression", "text", "said"),
    [
        ("sum(rate(reo_records_in_total[5m])", "", "cannot be parsed"),
        ("rate(reo_records_in_total)", "", "cannot be parsed"),
        ("reo_records_in", "", "there is no metric reo_records_in"),
        ("sum by (worker) (reo_lag_records)", "", "reo_lag_records has no label worker"),
        ('reo_ready{partition="1"}', "", "reo_ready has no label partition"),
        ('reo_records_dropped_total{reason=~"stale|lost"}', "", "never reason=lost"),
        ('reo_lag_records{stage="reo"}', "", "never stage=reo"),
        ("reo_ready > 1 and on (job, topic) up", "", "has no label topic"),
        ("reo_ready", "{{ $labels.topic }}", "reo_ready has no label topic"),
        ("time()", "", "asks for no metric"),
    ],
)
def test_what_asks_for_something_else_is_found(expression: str, text: str, said: str) -> None:
    """The check can fail, for each of its reasons."""
    assert any(said in problem for problem in problems(expression, text))


def test_one_look_answers_the_four_questions() -> None:
    """Is it running, how far behind in records and in seconds, what was dropped and why, how long
    do transactions take: in the first row.
    """
    assert at_a_glance() == {
        "reo_ready",
        "reo_lag_records",
        "reo_lag_seconds",
        "reo_records_dropped",
        "reo_transaction_seconds",
    }
    titles = [panel["title"] for panel in panels() if panel["gridPos"]["y"] == 1]
    assert titles == [
        "Running",
        "Behind, in records",
        "Behind, in seconds",
        "Dropped, by reason",
        "Transaction duration",
    ]


def test_no_panel_is_in_anothers_place() -> None:
    """Panels have numbers of their own, fill the width at most, and do not overlap."""
    places = [panel["gridPos"] for panel in panels()]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels()}) == len(panels())


def test_panels_are_of_kinds_that_were_seen_drawn() -> None:
    """docs/dashboard.png shows each kind with data; each panel and each question of one goes to the
    data source that the reader chooses.
    """
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    asking = [panel for panel in panels() if panel["type"] != "row"]
    assert {panel["type"] for panel in asking} == {"stat", "bargauge", "timeseries", "table"}
    assert all(
        place["datasource"] == chosen for panel in asking for place in (panel, *panel["targets"])
    )
    assert {panel["fieldConfig"]["defaults"]["unit"] for panel in asking} == {"short", "none", "s"}


def test_the_first_event_of_its_kind_is_counted() -> None:
    """A counter with labels appears with its first event, and `increase` knows only what follows:
    panels of events count what was not there before, too.

    Their bars are of a minute, one after the other, so that an event is in one bar; one on top of
    the other, so that none hides another.
    """
    bars = [
        panel
        for panel in panels()
        if panel["type"] == "timeseries"
        and panel["fieldConfig"]["defaults"].get("custom", {}).get("drawStyle") == "bars"
    ]
    assert {panel["title"] for panel in bars} == {
        "Starts and ends",
        "Errors",
        "Candidates",
    }
    for panel in bars:
        assert panel["interval"] == "1m"
        assert panel["fieldConfig"]["defaults"]["custom"]["stacking"]["mode"] == "normal"
        for expression, legend in (
            (target["expr"], target["legendFormat"]) for target in panel["targets"]
        ):
            counter = re.search(r"increase\((\w+\{[^}]*\})", expression)
            assert counter, expression
            new = f"({counter[1]} unless {counter[1]} offset $__interval)"
            expected = f"{new} or increase({counter[1]}[$__rate_interval])"
            assert "{{" not in legend or expected in expression


def test_every_alert_has_its_chapter_in_the_runbook() -> None:
    """And no chapter is left of an alert that is gone. An alert says how urgent it is, what is the
    case, and where to read on.
    """
    alerts = [rule["alert"] for rule in rules()]
    assert sorted(alerts) == sorted(re.findall(r"^## (\w+)$", RUNBOOK.read_text(), re.MULTILINE))
    assert len(alerts) == len(set(alerts))
    for rule in rules():
        assert rule["labels"]["severity"] in ("page", "ticket")
        annotations = dict(rule["annotations"])
        assert set(annotations) - {"runbook", "runbook_url"} == {"summary", "description"}
        runbook = annotations.get("runbook_url", annotations.get("runbook"))
        assert runbook.endswith(f"docs/how-to/alerts.md#{rule['alert'].lower()}")


def test_one_address_leads_all_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the alerts and the chart, and without one nothing leads to a place that is not there."""
    served = "https://docs.example.com/reo/docs"
    for urls in ({}, {"Documentation": served, "Source": "https://git.example.com/reo"}):
        monkeypatch.setattr(chart, "URLS", urls)
        alerts = yaml.safe_load(chart.write_rules())["groups"][0]["rules"]
        runbooks = [
            {key: text for key, text in rule["annotations"].items() if key.startswith("runbook")}
            for rule in alerts
        ]
        key, place = ("runbook_url", served) if urls else ("runbook", "docs")
        assert runbooks == [
            {key: f"{place}/how-to/alerts.md#{rule['alert'].lower()}"} for rule in alerts
        ]
        written = yaml.safe_load(chart.write_chart())
        assert written.get("home") == urls.get("Documentation")
        assert written.get("sources") == ([urls["Source"]] if urls else None)
        assert urls or "example.com" not in chart.write_rules() + chart.write_chart()


def test_the_dashboard_can_be_imported() -> None:
    """grafana.com takes what says which inputs and plugins it needs, as Grafana exports it. The
    data source is a variable, and no input: so a provisioned file works as it is.
    """
    dashboard = json.loads(DASHBOARD.read_text())
    assert dashboard["__inputs"] == []
    needed = {(entry["type"], entry["id"]) for entry in dashboard["__requires"]}
    kinds = {("panel", panel["type"]) for panel in panels() if panel["type"] != "row"}
    assert needed == kinds | {("grafana", "grafana"), ("datasource", "prometheus")}
    (grafana,) = (entry for entry in dashboard["__requires"] if entry["type"] == "grafana")
    assert compose()["grafana"]["image"] == f"grafana/grafana:{grafana['version']}"


def test_the_runbook_names_settings_that_exist() -> None:
    """A dotted name of one of our sections is a setting."""
    sections = {name.split(".")[0] for name in BY_NAME if "." in name}
    named = {
        name
        for name in re.findall(r"`([a-z_]+\.[a-z_.]+)(?:=\w+)?`", RUNBOOK.read_text())
        if name.split(".")[0] in sections
    }
    assert named
    assert named <= set(BY_NAME)


def test_the_local_stack_is_wired() -> None:
    """Prometheus scrapes the service by its name and port, and finds its rules; Grafana finds
    Prometheus and the dashboard where it is told to look.
    """
    services = compose()
    settings = load({name: str(value) for name, value in services["reo"]["environment"].items()})
    prometheus = ROOT / mounts("prometheus")["/etc/prometheus"]
    scraping = yaml.safe_load((prometheus / "prometheus.yml").read_text())
    (job,) = scraping["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"reo:{settings.metrics.port}"]}]
    assert job["job_name"].startswith("reo")
    assert all((prometheus / name).exists() for name in scraping["rule_files"])

    there = mounts("grafana")
    provisioning = ROOT / there["/etc/grafana/provisioning"]
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())[
        "datasources"
    ]
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "reo.yml").read_text())["providers"]
    assert source["url"] == "http://prometheus:9090"
    assert "127.0.0.1:9090:9090" in services["prometheus"]["ports"]
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (ROOT / there[provider["options"]["path"]] / "reo.json").exists()
    assert home == f"{provider['options']['path']}/reo.json"


def test_images_of_the_local_stack_are_pinned() -> None:
    """All but our own, which is built from here."""
    images = {service["image"] for service in compose().values()}
    assert images - {"reo:local"}
    assert all(re.search(r":v?\d+\.\d+\.\d+$", image) for image in images - {"reo:local"})


def test_every_reason_of_an_ended_run_is_documented() -> None:
    """The metric's own text names them: the page has it, and Prometheus shows it."""
    documented = metrics.RUNS._documentation.partition(": ")[2].removesuffix(".").split(", ")
    assert documented == [event for event in get_args(Event) if ("running", event) in NEXT], (
        "the events with which a running query ends"
    )
