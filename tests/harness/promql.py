"""What a dashboard and alert rules ask for: their expressions, parsed, and compared with the
metrics that the code has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import promql_parser as promql
import yaml
from prometheus_client.metrics import MetricWrapperBase

from replicator.runs.end_reasons import Event
from tests.harness.kafka import ROOT
from tools.reference.interfaces import LABEL_VALUES, METRIC_MODULES

DASHBOARD = ROOT / "deploy" / "grafana" / "dashboards" / "reo.json"
RULES = ROOT / "deploy" / "prometheus" / "rules.yml"
KAF_RELAYS = RULES.with_name("kaf-relay-names.yml")
SCALED = ROOT / "deploy" / "kubernetes" / "autoscaling" / "scaled-object.yaml"
SCRAPED = {"job", "instance"}
"""What Prometheus adds to every sample."""
WORDS = LABEL_VALUES | {"reo_runs_total": {"reason": get_args(Event)}}
GRAFANAS = {"$__rate_interval": "1m", "$__interval": "1m", "$__range": "15m", "$job": "reo"}
STAGES = ("replicator", "deduplicator")


@cache
def list_known_samples() -> dict[str, set[str]]:
    """Every sample that a service may expose, with its labels."""
    found: dict[str, set[str]] = {"up": set(SCRAPED)}
    for metric in (value for module in METRIC_MODULES for value in vars(module).values()):
        if isinstance(metric, MetricWrapperBase):
            labels = {*metric._labelnames, *SCRAPED}
            names = {"counter": ["_total"], "gauge": [""], "histogram": ["_sum", "_count"]}[
                str(metric._type)
            ]
            found |= {metric._name + ending: labels for ending in names}
            if metric._type == "histogram":
                found[metric._name + "_bucket"] = labels | {"le"}
    return found


def panels() -> list[dict[str, Any]]:
    """The dashboard's panels, rows among them."""
    return list(json.loads(DASHBOARD.read_text())["panels"])


def rules(file: Path = RULES) -> list[dict[str, Any]]:
    """The alert rules, or those of another file."""
    return [rule for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]]


def fill_variables(expression: str) -> str:
    """What Grafana would send: with its variables filled in."""
    for variable, value in GRAFANAS.items():
        expression = expression.replace(variable, value)
    return expression


def list_queries() -> list[tuple[str, str, str]]:
    """Where, the expression, and the text that is made of its labels: all of the dashboard, of both
    files of rules, and of autoscaling.
    """
    found = [
        (f"panel {panel['title']}", fill_variables(target["expr"]), target["legendFormat"])
        for panel in panels()
        for target in panel.get("targets", ())
    ]
    found += [
        ("autoscaling", trigger["metadata"]["query"], "")
        for trigger in yaml.safe_load(SCALED.read_text())["spec"]["triggers"]
    ]
    found += [(f"record {rule['record']}", rule["expr"], "") for rule in rules(KAF_RELAYS)]
    return found + [
        (f"alert {rule['alert']}", rule["expr"], " ".join(rule["annotations"].values()))
        for rule in rules()
    ]


def _below(node: Any) -> Iterator[Any]:
    yield node
    children = [
        getattr(node, name, None) for name in ("expr", "lhs", "rhs", "param", "vector_selector")
    ] + list(getattr(node, "args", ()) or ())
    for child in children:
        if isinstance(child, promql.Expr):
            yield from _below(child)


def selectors(expression: str) -> list[Any]:
    """Every selector of an expression; ValueError when it cannot be parsed."""
    return [
        node for node in _below(promql.parse(expression)) if isinstance(node, promql.VectorSelector)
    ]


def _find_grouping_labels(expression: str) -> set[str]:
    """The labels that an expression groups or matches by."""
    found: set[str] = set()
    for node in _below(promql.parse(expression)):
        modifier = getattr(node, "modifier", None)
        labels = getattr(modifier, "labels", None) or getattr(
            getattr(modifier, "matching", None), "labels", None
        )
        found |= set(labels or ())
    return found


def problems(expression: str, text: str = "") -> list[str]:
    """What is wrong with an expression, and with a text that names labels of its result; empty when
    nothing is.
    """
    try:
        used = selectors(expression)
    except ValueError as wrong:
        return [f"cannot be parsed: {wrong}"]
    found: list[str] = []
    samples = list_known_samples()
    labels = _find_grouping_labels(expression) | set(
        re.findall(r"\{\{ *(?:\$labels\.)?(\w+) *\}\}", text)
    )
    for selector in used:
        if selector.name not in samples:
            found.append(f"there is no metric {selector.name}")
            continue
        has = samples[selector.name]
        found += [f"{selector.name} has no label {label}" for label in labels - has]
        for matcher in selector.matchers.matchers:
            words = (
                STAGES
                if matcher.name == "stage"
                else WORDS.get(selector.name, {}).get(matcher.name)
            )
            if matcher.name not in has:
                found.append(f"{selector.name} has no label {matcher.name}")
            elif words:
                found += [
                    f"{selector.name} is never {matcher.name}={word}"
                    for word in matcher.value.split("|")
                    if word not in words
                ]
    return found if used else [*found, "it asks for no metric"]


def at_a_glance() -> set[str]:
    """The families that the dashboard's first row asks for."""
    first = [panel for panel in panels() if panel["type"] != "row" and panel["gridPos"]["y"] == 1]
    names = {
        selector.name
        for panel in first
        for target in panel["targets"]
        for selector in selectors(fill_variables(target["expr"]))
    }
    return {re.sub("_(total|bucket)$", "", name) for name in names}
