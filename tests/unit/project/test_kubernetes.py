"""What is applied to a Kubernetes cluster: valid by the API's own schemas, allowed where pod
security is restricted, and with settings that reo takes.
"""

from __future__ import annotations

import copy
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from common.settings import load
from tests.harness.kafka import ROOT
from tools.reference.chart import KUBERNETES_MIN

DEPLOY = ROOT / "deploy" / "kubernetes"
SINGLE = ROOT / "k8s-deployment.yml"
VERSIONS = (KUBERNETES_MIN, kubernetes_validate.latest_version())
"""Of the API: one that long-lived clusters have, and the newest that the schemas are there for."""
NOT_KUBERNETES = {
    *("ServiceMonitor", "PrometheusRule", "ScaledObject"),
    *("Kustomization", "Component"),
}
EXECUTOR = ROOT / "replicator" / "spark" / "executor-pod.yaml"
"""What Spark makes executor pods from."""
SCALED = DEPLOY / "autoscaling" / "scaled-object.yaml"
PODS = [SINGLE, DEPLOY / "base" / "replicator.yaml", DEPLOY / "base" / "deduplicator.yaml"]
VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
"""What the Pod Security Standard "restricted" allows."""


def format_path(path: Path) -> str:
    """The path as a test's name."""
    return str(path.relative_to(ROOT))


def documents(path: Path) -> list[dict[str, Any]]:
    """What a file has."""
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def workload(path: Path) -> dict[str, Any]:
    """The object of a file that starts pods, or its only one."""
    return documents(path)[0]


def objects() -> list[Path]:
    """Every file with objects of Kubernetes' own."""
    return [
        SINGLE,
        EXECUTOR,
        *(
            path
            for path in sorted(DEPLOY.rglob("*.yaml"))
            if isinstance(documents(path)[0], dict)
            and documents(path)[0]["kind"] not in NOT_KUBERNETES
        ),
    ]


def validate_object(thing: dict[str, Any], version: str) -> None:
    """ValidationError for what the API would refuse, and for a field that it does not know."""
    kubernetes_validate.validate(thing, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", objects(), ids=format_path)
def test_the_api_takes_it(path: Path, version: str) -> None:
    """Each object is valid by the schema of its kind."""
    for thing in documents(path):
        validate_object(thing, version)


def test_the_schema_refuses_what_is_wrong() -> None:
    """A field that there is not, and a value of another kind."""
    for wrong in ({"replica": 1}, {"replicas": "two"}):
        thing = workload(SINGLE)
        thing["spec"] |= wrong
        with pytest.raises(kubernetes_validate.ValidationError):
            validate_object(thing, VERSIONS[-1])


def assert_restricted(pod: dict[str, Any]) -> None:
    """The Pod Security Standard "restricted", and more: nothing writable but /tmp, no token of the
    cluster, no variables of its Services.
    """
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(pod)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert all(set(volume) - {"name"} <= VOLUMES for volume in pod["volumes"])
    assert pod["enableServiceLinks"] is False
    assert pod["automountServiceAccountToken"] is False
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/tmp"]
    assert {"requests", "limits"} <= set(container["resources"])


@pytest.mark.parametrize("path", PODS, ids=format_path)
def test_pods_are_restricted(path: Path) -> None:
    """And each is asked how it is at the port that it has."""
    pod = workload(path)["spec"]["template"]["spec"]
    assert_restricted(pod)
    (container,) = pod["containers"]
    probes = {
        probe: container[probe]["httpGet"]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert {probe["path"] for probe in probes.values()} == {"/livez", "/readyz"}
    assert probes["readinessProbe"]["path"] == "/readyz"
    assert {probe["port"] for probe in probes.values()} == {
        port["name"] for port in container["ports"]
    }


def environment(container: dict[str, Any]) -> dict[str, str]:
    """What the container has in its environment; what the pod gives is the name of its field."""
    given: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        assert source["configMapRef"]["name"] == "reo-settings"
        given |= variables(DEPLOY / "base" / "settings.env")
    return given | {
        entry["name"]: entry.get("value") or entry["valueFrom"]["fieldRef"]["fieldPath"]
        for entry in container["env"]
    }


def variables(path: Path) -> dict[str, str]:
    """As kustomize reads a file of variables."""
    return dict(
        line.split("=", 1)
        for line in path.read_text().splitlines()
        if line and not line.startswith("#")
    )


@pytest.mark.parametrize("path", PODS, ids=format_path)
def test_reo_takes_the_settings(path: Path) -> None:
    """No name is unknown, none is missing; each pod says which instance it is, and pods that can be
    several are not all the same one.
    """
    thing = workload(path)
    (container,) = thing["spec"]["template"]["spec"]["containers"]
    given = environment(container)
    assert all(name.startswith("REO_") for name in given), "the names of the reference"
    loaded = load(given)
    assert loaded.metrics.port in {port["containerPort"] for port in container["ports"]}
    if thing["kind"] == "StatefulSet":
        assert {
            "name": "REO_INSTANCE",
            "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
        } in container["env"]
    else:
        assert thing["spec"]["replicas"] == 1
        assert thing["spec"]["strategy"] == {"type": "Recreate"}
        assert "REO_INSTANCE" in given


def test_sasl_in_comments_is_taken_too() -> None:
    """What the deployment of one pod has for a source with SASL, without the comment signs."""
    text = re.sub(r"(?m)^( *)# (?=- \{name: REO_)", r"\1", SINGLE.read_text())
    deployment, service = yaml.safe_load_all(text)
    for version in VERSIONS:
        validate_object(deployment, version)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    password = container["env"].pop()
    assert password["valueFrom"]["secretKeyRef"]["key"] == "password"
    loaded = load(environment(container) | {password["name"]: "x"})
    assert loaded.source.security.security_protocol == "SASL_SSL"
    assert (
        service["spec"]["selector"].items()
        <= deployment["spec"]["template"]["metadata"]["labels"].items()
    )
    assert service["spec"]["ports"][0]["targetPort"] in {
        port["name"] for port in container["ports"]
    }


def test_the_examples_settings_are_taken_too() -> None:
    """They replace the base's."""
    given = variables(DEPLOY / "example" / "settings.env")
    password = given.pop("REO_SOURCE_SASL_PASSWORD_FILE")
    assert password.startswith(
        patch_workloads()[0]["spec"]["template"]["spec"]["containers"][0]["volumeMounts"][-1][
            "mountPath"
        ]
    )
    assert load(given | {"REO_SOURCE_SASL_PASSWORD": "x"}).application == "reo-orders"


def test_the_settings_for_executors_are_taken_too() -> None:
    """What the component adds to stage one's pod; Spark finds its pod, its address and its image by
    it.
    """
    entries = [
        operation["value"]
        for operation in documents(DEPLOY / "executors" / "replicator.yaml")[0]
        if operation["path"].endswith("/env/-")
    ]
    loaded = load(variables(DEPLOY / "base" / "settings.env") | environment({"env": entries}))
    assert loaded.replicator.master == "k8s://https://kubernetes.default.svc"
    base = workload(PODS[1])["spec"]["template"]["spec"]["containers"][0]["image"]
    assert loaded.replicator.spark_options == {
        "spark.kubernetes.container.image": base,
        "spark.kubernetes.namespace": "metadata.namespace",
        "spark.kubernetes.driver.pod.name": "metadata.name",
        "spark.driver.host": "status.podIP",
    }


@pytest.mark.skipif(not shutil.which("kubectl"), reason="there is no kubectl")
@pytest.mark.parametrize("folder", ["base", "example", "example-executors", "example-operator"])
def test_what_kustomize_makes_is_taken(folder: str) -> None:
    """Every object is valid, and the label of each says which stage it is of."""
    made = subprocess.run(
        ["kubectl", "kustomize", DEPLOY / folder], capture_output=True, text=True, check=True
    )
    components = set()
    for thing in yaml.safe_load_all(made.stdout):
        for version in VERSIONS if thing["kind"] not in NOT_KUBERNETES else ():
            validate_object(thing, version)
        components.add(thing["metadata"].get("labels", {}).get("app.kubernetes.io/component"))
    assert {"replicator", "deduplicator"} <= components


def test_lag_scales_stage_two() -> None:
    """The object is stage two's, which says itself how many pods there are no longer, and asks for
    the job that the ServiceMonitor makes in the example's namespace.
    """
    scaled = workload(SCALED)["spec"]
    (told,) = documents(SCALED.with_name("kustomization.yaml"))
    (patch,) = told["patches"]
    two = workload(PODS[2])
    name = {"kind": two["kind"], "name": two["metadata"]["name"]}
    assert scaled["scaleTargetRef"] == {"apiVersion": two["apiVersion"]} | name
    assert patch["target"] == name
    operations = yaml.safe_load(SCALED.with_name(patch["path"]).read_text())
    assert operations == [{"op": "remove", "path": "/spec/replicas"}]
    namespace = workload(DEPLOY / "example" / "namespace.yaml")["metadata"]["name"]
    service = workload(DEPLOY / "base" / "service.yaml")["metadata"]["name"]
    assert f'job="{service}-{namespace}"' in scaled["triggers"][0]["metadata"]["query"]


def patch_workloads() -> list[dict[str, Any]]:
    """The base's workloads with the example's patch, which only appends to lists."""
    (told,) = documents(DEPLOY / "example" / "kustomization.yaml")
    (patch,) = told["patches"]
    found = []
    for thing in map(workload, PODS[1:]):
        assert thing["kind"] in patch["target"]["kind"].split("|")
        patched = copy.deepcopy(thing)
        for operation in yaml.safe_load((DEPLOY / "example" / patch["path"]).read_text()):
            *way, last = operation["path"].strip("/").split("/")
            assert (operation["op"], last) == ("add", "-")
            place: Any = patched
            for step in way:
                place = place[int(step) if isinstance(place, list) else step]
            place.append(operation["value"])
        found.append(patched)
    return found


def test_disruptions_and_services_select_the_pods() -> None:
    """The budget is stage two's alone: one for stage one's single pod would hold every node. The
    Service has the pods' port and the name they know it by.
    """
    labels = {
        thing["kind"]: thing["spec"]["template"]["metadata"]["labels"]
        for thing in map(workload, PODS[1:])
    }
    assert (
        workload(DEPLOY / "base" / "disruption.yaml")["spec"]["selector"]["matchLabels"]
        == labels["StatefulSet"]
        != labels["Deployment"]
    )
    service = workload(DEPLOY / "base" / "service.yaml")
    assert workload(PODS[2])["spec"]["serviceName"] == service["metadata"]["name"]
    (monitor,) = documents(DEPLOY / "service-monitor" / "service-monitor.yaml")
    assert [endpoint["port"] for endpoint in monitor["spec"]["endpoints"]] == [
        port["name"] for port in service["spec"]["ports"]
    ]
    policy = workload(DEPLOY / "network-policy" / "network-policy.yaml")["spec"]
    (selected,) = policy["podSelector"]["matchExpressions"]
    for labels_of_pod in (service["spec"]["selector"], workload(EXECUTOR)["metadata"]["labels"]):
        assert labels_of_pod[selected["key"]] in selected["values"]
    assert policy["ingress"][1:] == [{"from": [{"podSelector": policy["podSelector"]}]}], (
        "at every port, from each other"
    )
    assert [port["port"] for port in policy["ingress"][0]["ports"]] == [
        port["targetPort"] for port in service["spec"]["ports"]
    ]
    (told,) = documents(DEPLOY / "base" / "kustomization.yaml")
    assert (
        [entry["pairs"] for entry in told["labels"]]
        == [service["spec"]["selector"]]
        == [monitor["spec"]["selector"]["matchLabels"]]
    )
