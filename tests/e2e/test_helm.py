"""The Helm chart, with a real helm: what it renders is valid and restricted, takes the settings,
and is the manifests' own. `make helm` builds helm.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from common.settings import load
from reo.version import VERSION
from tests.harness.helm import (
    ALL,
    ALL_NAME,
    CLUSTERS,
    LEAST,
    NEEDS_HELM,
    get_pod,
    pods,
    render_chart,
    run,
)
from tests.harness.kafka import ROOT
from tests.harness.promql import RULES, rules
from tests.unit.project.test_kubernetes import (
    DEPLOY,
    NOT_KUBERNETES,
    SINGLE,
    VERSIONS,
    assert_restricted,
    validate_object,
    workload,
)

SEVERITIES = {"page": "critical", "ticket": "warning"}
pytestmark = NEEDS_HELM


@pytest.mark.parametrize("values", [LEAST, ALL], ids=["least", "all"])
def test_the_chart_is_valid(helm: str, package: Path, values: dict[str, Any]) -> None:
    """Helm finds nothing to warn of; every object is valid by the API's schemas, and its pods are
    restricted as those of the manifests.
    """
    linted = run(helm, "lint", "--strict", str(package), values=values)
    assert linted.returncode == 0, linted.stdout
    assert "[" not in linted.stdout, "nothing is recommended either"
    things = render_chart(helm, package, values)
    for (kind, name), thing in things.items():
        assert name.startswith("reo")
        assert (thing["metadata"]["labels"].get("owner") == "data") == (values is ALL)
        assert thing["metadata"]["labels"]["app.kubernetes.io/instance"] == "orders"
        for version in VERSIONS if kind not in NOT_KUBERNETES else ():
            validate_object(thing, version)
    for pod in pods(things):
        spec = copy.deepcopy(pod["spec"])
        (container,) = spec["containers"]
        container["volumeMounts"] = [
            mount for mount in container["volumeMounts"] if not mount.get("readOnly")
        ]
        if values is ALL:  # OpenShift chooses the user, and stage one starts executors
            spec["securityContext"] |= {"runAsUser": 1}
            stage = pod["metadata"]["labels"]["app.kubernetes.io/component"]
            assert spec["automountServiceAccountToken"] == (stage == "replicator")
            spec["automountServiceAccountToken"] = False
        assert_restricted(spec)


def test_what_is_optional_is_left_out(helm: str, package: Path) -> None:
    """Without a word there are the pods, their settings and their Service: nothing that a plain
    cluster does not take.
    """
    assert set(render_chart(helm, package, LEAST)) == {
        ("Deployment", "reo-orders"),
        ("ConfigMap", "reo-orders"),
        ("Service", "reo-orders"),
        ("Pod", "reo-orders-check"),
    }
    assert {kind for kind, _ in render_chart(helm, package, ALL)} == {
        "Deployment",
        "StatefulSet",
        "ConfigMap",
        "Service",
        "ServiceAccount",
        "Role",
        "RoleBinding",
        "ScaledObject",
        "Pod",
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
    name = ALL_NAME if values is ALL else "reo-orders"
    (tmp_path / "reo.json").write_text(things["ConfigMap", name]["data"]["reo.json"])
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
            ("Deployment", f"{ALL_NAME}-replicator"),
            ("StatefulSet", f"{ALL_NAME}-deduplicator"),
        )
    )
    service, labels = (
        things["Service", ALL_NAME],
        [spec["template"]["metadata"]["labels"].items() for spec in (one, two)],
    )
    selected = things["NetworkPolicy", ALL_NAME]["spec"]["podSelector"]
    (names,) = selected["matchExpressions"]
    for items in labels:
        assert service["spec"]["selector"].items() <= items
        assert selected["matchLabels"].items() <= items
        assert dict(items)[names["key"]] in names["values"]
    assert (
        things["ServiceMonitor", ALL_NAME]["spec"]["selector"]["matchLabels"].items()
        <= service["metadata"]["labels"].items()
    )
    selectors = [spec["selector"]["matchLabels"].items() for spec in (one, two)]
    assert [[selector <= items for items in labels] for selector in selectors] == [
        [True, False],
        [False, True],
    ]
    assert (
        things["PodDisruptionBudget", f"{ALL_NAME}-deduplicator"]["spec"]["selector"][
            "matchLabels"
        ].items()
        == selectors[1]
    )
    assert two["serviceName"] == ALL_NAME
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
    """Whoever changes a probe or a limit in the manifests has changed it in the chart."""
    apart = LEAST | {"stages": "apart"}
    for values, path, component in (
        (LEAST, SINGLE, "reo"),
        (apart, DEPLOY / "base" / "replicator.yaml", "replicator"),
        (apart, DEPLOY / "base" / "deduplicator.yaml", "deduplicator"),
    ):
        ours, theirs = (
            get_pod(render_chart(helm, package, values), component),
            workload(path)["spec"]["template"]["spec"],
        )
        ours_container, theirs_container = (pod.pop("containers")[0] for pod in (ours, theirs))
        assert ours_container["image"] == f"reo:{VERSION}"
        kept = set(theirs_container) - {"image", "env", "envFrom", "volumeMounts"}
        assert {key: ours_container[key] for key in kept} == {
            key: theirs_container[key] for key in kept
        }
        changed = {"volumes", "topologySpreadConstraints"}
        assert {key: ours[key] for key in ours if key not in changed} == {
            key: theirs[key] for key in theirs if key not in changed
        }


def test_the_check_runs_as_stage_one_does(helm: str, package: Path) -> None:
    """`helm test`: reo check, with the settings and secrets; the Service does not select it."""
    for values, component, name in ((LEAST, "reo", "reo-orders"), (ALL, "replicator", ALL_NAME)):
        things = render_chart(helm, package, values)
        check, pod = things["Pod", f"{name}-check"], get_pod(things, component)
        assert check["metadata"]["annotations"]["helm.sh/hook"] == "test"
        (ours,), (theirs,) = check["spec"].pop("containers"), pod.pop("containers")
        assert ours["args"] == ["check"]
        for key in ("env", "image", "volumeMounts", "securityContext"):
            assert ours[key] == theirs[key]
        assert check["spec"] == pod | {"restartPolicy": "Never"}
        assert (
            not things["Service", name]["spec"]["selector"].items()
            <= check["metadata"]["labels"].items()
        )


def test_alerts_and_dashboard_are_those_of_the_repository(helm: str, package: Path) -> None:
    """The links of the alerts lead where the value says."""
    things = render_chart(helm, package, ALL)
    (group,) = things["PrometheusRule", ALL_NAME]["spec"]["groups"]
    for ours, theirs in zip(group["rules"], rules(), strict=True):
        chapter = f"alerts.md#{theirs['alert'].lower()}"
        assert (
            ours["annotations"].pop("runbook_url")
            == f"https://wiki.example.com/reo/how-to/{chapter}"
        )
        assert ours == theirs | {
            "labels": {"severity": SEVERITIES[theirs["labels"]["severity"]]},
            "annotations": {
                key: text
                for key, text in theirs["annotations"].items()
                if not key.startswith("runbook")
            },
        }
    dashboard = things["ConfigMap", f"{ALL_NAME}-dashboard"]
    assert json.loads(dashboard["data"]["reo.json"]) == json.loads(
        (ROOT / "deploy" / "grafana" / "dashboards" / "reo.json").read_text()
    )
    plain = render_chart(helm, package, LEAST | {"prometheusRule": {"enabled": True}})[
        "PrometheusRule", "reo-orders"
    ]
    assert plain["spec"] == yaml.safe_load(RULES.read_text())
