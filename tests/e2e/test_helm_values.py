"""The values of the Helm chart, with a real helm: what each changes, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from common.settings.schema import SETTINGS
from tests.harness.helm import (
    ALL,
    ALL_NAME,
    CLUSTERS,
    LEAST,
    NEEDS_HELM,
    get_pod,
    render_chart,
    run,
)
from tests.unit.project.test_kubernetes import (
    DEPLOY,
    workload,
)
from tools.reference import chart

pytestmark = NEEDS_HELM


def test_without_values_it_says_what_is_missing(helm: str, package: Path) -> None:
    """`helm lint` has nothing against the chart itself; to render it takes two addresses."""
    assert run(helm, "lint", "--strict", str(package), values={}).returncode == 0
    for values, missing in (
        ({}, "settings.source.bootstrap_servers is missing"),
        ({"settings": {"source": CLUSTERS["source"]}}, "settings.destination.bootstrap_servers"),
    ):
        done = run(helm, "template", "orders", str(package), values=values)
        assert done.returncode != 0
        assert missing in done.stderr


def test_a_value_changes_what_it_names(helm: str, package: Path) -> None:
    """For all pods, or for those of one stage; nothing beside it."""
    things = render_chart(helm, package, ALL)
    one, two = get_pod(things, "replicator"), get_pod(things, "deduplicator")
    manifest = workload(DEPLOY / "base" / "replicator.yaml")["spec"]["template"]["spec"]
    assert one["nodeSelector"] == {"kubernetes.io/arch": "amd64", "pool": "large"}
    assert two["nodeSelector"] == {"kubernetes.io/arch": "amd64"}
    assert (one["tolerations"], two["tolerations"]) == (
        manifest["tolerations"],
        ALL["deduplicator"]["tolerations"],
    )
    assert ("affinity" in one, "affinity" in two) == (False, True)
    for pod in (one, two):
        container = pod["containers"][0]
        assert container["image"] == "registry.example.com/reo@sha256:0123"
        assert pod["securityContext"] == ALL["podSecurityContext"]
        assert pod["serviceAccountName"] == ALL_NAME
        assert pod["terminationGracePeriodSeconds"] == 20
        assert container["livenessProbe"] == manifest["containers"][0]["livenessProbe"] | {
            "timeoutSeconds": 10
        }
    assert one["containers"][0]["resources"]["limits"] == {"memory": "3Gi"}
    workload_two = things["StatefulSet", f"{ALL_NAME}-deduplicator"]
    assert workload_two["spec"]["updateStrategy"] == ALL["deduplicator"]["updateStrategy"]
    assert workload_two["metadata"]["annotations"] == ALL["annotations"]
    labels = workload_two["spec"]["template"]["metadata"]["labels"]
    assert ALL["podLabels"].items() <= labels.items()
    assert workload_two["metadata"]["labels"]["app.kubernetes.io/component"] == "deduplicator"
    assert things["Service", ALL_NAME]["metadata"]["annotations"] == ALL["service"]["annotations"]
    policy = things["NetworkPolicy", ALL_NAME]["spec"]["ingress"]
    assert policy[0]["from"] == ALL["networkPolicy"]["from"]
    open_to_all = LEAST | {"networkPolicy": {"enabled": True, "from": []}}
    policy = render_chart(helm, package, open_to_all)["NetworkPolicy", "reo-orders"]["spec"]
    (scraping,) = policy["ingress"]
    assert "from" not in scraping


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "source"),
        ({"settings": CLUSTERS | {"deduplicator": {"wokers": 2}}}, "wokers"),
        ({"settings": CLUSTERS | {"deduplicator": {"workers": 0}}}, "workers"),
        (
            {"settings": CLUSTERS | {"source": CLUSTERS["source"] | {"sasl_password": "x"}}},
            "sasl_password",
        ),
        (LEAST | {"secrets": {"source.sasl_username": {"name": "a", "key": "b"}}}, "sasl_username"),
        (LEAST | {"replicas": 2}, "replicas"),
        (LEAST | {"executors": {"env": []}}, "env"),
        (LEAST | {"autoscaling": {"minReplicas": 0}}, "minReplicas"),
        (
            {"settings": CLUSTERS | {"replicator": {"master": "spark://a:7077"}}}
            | {"executors": {"enabled": True}},
            "both say where stage one's tasks run",
        ),
        (LEAST | {"fullnameOverride": "orders"}, "fullnameOverride"),
        (LEAST | {"stages": "three"}, "stages"),
    ],
)
def test_a_mistyped_value_is_refused(
    helm: str, package: Path, values: dict[str, Any], said: str
) -> None:
    """By its name, before anything is installed; a password among the values too."""
    done = run(helm, "template", "orders", str(package), values=values)
    assert done.returncode != 0
    assert said in done.stderr


def test_every_setting_has_its_place_in_the_schema() -> None:
    """As a value, as the name of a Secret, or it is the chart's own."""
    schema = chart.build_settings_schema()["properties"]
    for setting in SETTINGS:
        section, _, key = setting.name.rpartition(".")
        place = schema.get(section, {}).get("properties", {}) if section else schema
        assert (key in place) == (
            setting.kind != "secret" and setting.name not in chart.NOT_VALUES
        ), setting.name
