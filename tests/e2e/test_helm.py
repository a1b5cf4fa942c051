"""The Helm chart, with a real helm: what it renders is valid and restricted, takes the settings,
and is the manifests' own. `make helm` builds helm.
"""

from __future__ import annotations

import copy
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from common.settings import load
from common.settings.setting_index import SETTINGS
from reference import chart
from reo.version import VERSION
from tests.harness.helm import ALL, CLUSTERS, HELM, LEAST, pods, render_chart, run
from tests.harness.kafka import ROOT
from tests.harness.promql import RULES, rules
from tests.unit.test_kubernetes import (
    DEPLOY,
    NOT_KUBERNETES,
    SINGLE,
    VERSIONS,
    assert_restricted,
    validate_object,
    workload,
)

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not HELM, reason="there is no helm: `make helm` builds it where Go is installed"
    ),
]


@pytest.fixture(scope="module")
def helm() -> str:
    """The program."""
    return HELM


@pytest.fixture(scope="module")
def package(helm: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart as it is released: one file that does without this repository."""
    folder = tmp_path_factory.mktemp("chart")
    subprocess.run(
        [helm, "package", str(chart.FOLDER), "-d", str(folder)], capture_output=True, check=True
    )
    return folder / f"reo-{VERSION}.tgz"


@pytest.mark.parametrize("values", [LEAST, ALL], ids=["least", "all"])
def test_the_chart_is_valid(helm: str, package: Path, values: dict[str, Any]) -> None:
    """Helm finds nothing to warn of; every object is valid by the API's schemas, and its pods are
    restricted as those of the manifests.
    """
    linted = run(helm, "lint", "--strict", str(package), values=values)
    assert linted.returncode == 0, linted.stdout
    things = render_chart(helm, package, values)
    for (kind, name), thing in things.items():
        assert name.startswith("reo")
        assert thing["metadata"]["labels"]["app.kubernetes.io/instance"] == "orders"
        for version in VERSIONS if kind not in NOT_KUBERNETES else ():
            validate_object(thing, version)
    for pod in pods(things):
        spec = copy.deepcopy(pod["spec"])
        (container,) = spec["containers"]
        container["volumeMounts"] = [
            mount for mount in container["volumeMounts"] if not mount.get("readOnly")
        ]
        assert_restricted(spec)


def test_what_is_optional_is_left_out(helm: str, package: Path) -> None:
    """Without a word there are the pods, their settings and their Service: nothing that a plain
    cluster does not take.
    """
    assert set(render_chart(helm, package, LEAST)) == {
        ("Deployment", "reo-orders"),
        ("ConfigMap", "reo-orders"),
        ("Service", "reo-orders"),
    }
    assert {kind for kind, _ in render_chart(helm, package, ALL)} == {
        "Deployment",
        "StatefulSet",
        "ConfigMap",
        "Service",
        "PodDisruptionBudget",
        "NetworkPolicy",
        "ServiceMonitor",
        "PrometheusRule",
    }
    assert ("Deployment", "reo-eu") in render_chart(helm, package, LEAST, "reo-eu"), (
        "the name is not doubled"
    )


@pytest.mark.parametrize("values", [LEAST, ALL], ids=["least", "all"])
def test_reo_takes_the_settings(
    helm: str, package: Path, tmp_path: Path, values: dict[str, Any]
) -> None:
    """The file and the variables of each pod are settings; the password comes from the file of the
    Secret, and is nowhere in the release.
    """
    things = render_chart(helm, package, values)
    (tmp_path / "reo.json").write_text(things["ConfigMap", "reo-orders"]["data"]["reo.json"])
    (tmp_path / "password").write_text("secret")
    for pod in pods(things):
        (container,) = pod["spec"]["containers"]
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        environment = {
            entry["name"]: entry.get("value") or entry["valueFrom"]["fieldRef"]["fieldPath"]
            for entry in container["env"]
        }
        assert environment["REO_SETTINGS_FILE"] == f"{mounts['settings']}/reo.json"
        environment["REO_SETTINGS_FILE"] = str(tmp_path / "reo.json")
        if values is ALL:
            assert (
                environment["REO_SOURCE_SASL_PASSWORD_FILE"]
                == f"{mounts['secret-source-sasl-password']}/value"
            )
            assert {
                "name": "secret-source-sasl-password",
                "secret": {
                    "secretName": "reo-source",
                    "items": [{"key": "password", "path": "value"}],
                },
            } in pod["spec"]["volumes"]
            environment["REO_SOURCE_SASL_PASSWORD_FILE"] = str(tmp_path / "password")
        loaded = load(environment)
        assert loaded.instance
        assert loaded.log.format == "json"
        assert {port["containerPort"] for port in container["ports"]} == {loaded.metrics.port}
        if values is ALL:
            assert (loaded.application, loaded.source.security.sasl_password) == (
                "orders-copy",
                "secret",
            )
            assert (loaded.producer.delivery_timeout_ms, loaded.topics.replication_factor) == (
                604_800_001,
                3,
            )
            assert loaded.source.consumer_options == {"max.partition.fetch.bytes": "2000000"}


def test_the_objects_belong_together(helm: str, package: Path) -> None:
    """Selectors find the pods, and only the right ones; other settings start new pods."""
    things = render_chart(helm, package, ALL)
    one, two = (
        things[kind, name]["spec"]
        for kind, name in (
            ("Deployment", "reo-orders-replicator"),
            ("StatefulSet", "reo-orders-deduplicator"),
        )
    )
    service, labels = (
        things["Service", "reo-orders"],
        [spec["template"]["metadata"]["labels"].items() for spec in (one, two)],
    )
    for items in labels:
        assert service["spec"]["selector"].items() <= items
        assert (
            things["NetworkPolicy", "reo-orders"]["spec"]["podSelector"]["matchLabels"].items()
            <= items
        )
    assert (
        things["ServiceMonitor", "reo-orders"]["spec"]["selector"]["matchLabels"].items()
        <= service["metadata"]["labels"].items()
    )
    selectors = [spec["selector"]["matchLabels"].items() for spec in (one, two)]
    assert [[selector <= items for items in labels] for selector in selectors] == [
        [True, False],
        [False, True],
    ]
    assert (
        things["PodDisruptionBudget", "reo-orders-deduplicator"]["spec"]["selector"][
            "matchLabels"
        ].items()
        == selectors[1]
    )
    assert (two["replicas"], two["serviceName"]) == (3, "reo-orders")
    assert (
        two["template"]["spec"]["topologySpreadConstraints"][0]["labelSelector"][
            "matchLabels"
        ].items()
        == selectors[1]
    )
    before, after = (
        pods(render_chart(helm, package, LEAST | more))[0]["metadata"]["annotations"]
        for more in ({}, {"settings": CLUSTERS | {"application": "another"}})
    )
    assert before != after


def test_pods_are_the_manifests_own(helm: str, package: Path) -> None:
    """Whoever changes a probe or a limit in the manifests has changed it in the chart; a value
    changes one of them alone.
    """
    for values, path, component in (
        (LEAST, SINGLE, "reo"),
        (ALL, DEPLOY / "base" / "replicator.yaml", "replicator"),
        (ALL, DEPLOY / "base" / "deduplicator.yaml", "deduplicator"),
    ):
        (pod,) = [
            pod
            for pod in pods(render_chart(helm, package, values))
            if pod["metadata"]["labels"]["app.kubernetes.io/component"] == component
        ]
        (ours,), (theirs,) = (
            pod["spec"]["containers"],
            workload(path)["spec"]["template"]["spec"]["containers"],
        )
        assert ours["image"] == f"reo:{VERSION}"
        kept = set(theirs) - {"image", "env", "envFrom", "volumeMounts", "resources"}
        assert {key: ours[key] for key in kept} == {key: theirs[key] for key in kept}
        limits = theirs["resources"]["limits"] | (
            {"memory": "3Gi"} if component == "replicator" else {}
        )
        assert ours["resources"] == theirs["resources"] | {"limits": limits}


def test_alerts_and_dashboard_are_those_of_the_repository(helm: str, package: Path) -> None:
    """The links of the alerts lead where the value says."""
    things = render_chart(helm, package, ALL)
    (group,) = things["PrometheusRule", "reo-orders"]["spec"]["groups"]
    for ours, theirs in zip(group["rules"], rules(), strict=True):
        chapter = theirs["annotations"]["runbook_url"].partition("/how-to/")[2]
        assert (
            ours["annotations"].pop("runbook_url")
            == f"https://wiki.example.com/reo/how-to/{chapter}"
        )
        assert ours == theirs | {
            "annotations": {
                key: text for key, text in theirs["annotations"].items() if key != "runbook_url"
            }
        }
    dashboard = things["ConfigMap", "reo-orders-dashboard"]
    assert json.loads(dashboard["data"]["reo.json"]) == json.loads(
        (ROOT / "deploy" / "grafana" / "dashboards" / "reo.json").read_text()
    )
    plain = render_chart(helm, package, LEAST | {"prometheusRule": {"enabled": True}})[
        "PrometheusRule", "reo-orders"
    ]
    assert plain["spec"] == yaml.safe_load(RULES.read_text())


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
