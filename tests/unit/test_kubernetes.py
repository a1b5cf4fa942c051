"""What is applied to a Kubernetes cluster: valid by the API's own schemas, allowed where pod
security is restricted, and with settings that reo takes.
"""

from __future__ import annotations

import copy
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from common.settings import is_ours, load
from tests.harness.kafka import ROOT

DEPLOY = ROOT / "deploy" / "kubernetes"
SINGLE = ROOT / "k8s-deployment.yml"
VERSIONS = ("1.29", kubernetes_validate.latest_version())
"""Of the API: one that long-lived clusters have, and the newest that the schemas are there for."""
NOT_KUBERNETES = {"ServiceMonitor", "PrometheusRule", "Kustomization", "Component"}
EXECUTOR = ROOT / "replicator" / "spark" / "executor-pod.yaml"
"""What Spark makes executor pods from."""
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


def named(path: Path) -> str:
    """The path as a test's name."""
    return str(path.relative_to(ROOT))


def documents(path: Path) -> list[dict[str, Any]]:
    """What a file has."""
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def workload(path: Path) -> dict[str, Any]:
    """The one object of a file that starts pods."""
    (found,) = documents(path)
    return found


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


def valid(thing: dict[str, Any], version: str) -> None:
    """ValidationError for what the API would refuse, and for a field that it does not know."""
    kubernetes_validate.validate(thing, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", objects(), ids=named)
def test_the_api_takes_it(path: Path, version: str) -> None:
    """Each object is valid by the schema of its kind."""
    for thing in documents(path):
        valid(thing, version)


def test_the_schema_refuses_what_is_wrong() -> None:
    """A field that there is not, and a value of another kind."""
    for wrong in ({"replica": 1}, {"replicas": "two"}):
        thing = workload(SINGLE)
        thing["spec"] |= wrong
        with pytest.raises(kubernetes_validate.ValidationError):
            valid(thing, VERSIONS[-1])


def restricted(pod: dict[str, Any]) -> None:
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


@pytest.mark.parametrize("path", PODS, ids=named)
def test_pods_are_restricted(path: Path) -> None:
    """And each is asked how it is at the port that it has."""
    pod = workload(path)["spec"]["template"]["spec"]
    restricted(pod)
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
    given = {}
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


@pytest.mark.parametrize("path", PODS, ids=named)
def test_reo_takes_the_settings(path: Path) -> None:
    """No name is unknown, none is missing; each pod says which instance it is, and pods that can be
    several are not all the same one.
    """
    thing = workload(path)
    (container,) = thing["spec"]["template"]["spec"]["containers"]
    given = environment(container)
    assert all(map(is_ours, given))
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


def test_the_examples_settings_are_taken_too() -> None:
    """What it adds to the base's, and changes of it."""
    given = variables(DEPLOY / "base" / "settings.env") | variables(
        DEPLOY / "example" / "settings.env"
    )
    password = given.pop("REO_SOURCE_SASL_PASSWORD_FILE")
    assert password.startswith(
        workload_patched()[0]["spec"]["template"]["spec"]["containers"][0]["volumeMounts"][-1][
            "mountPath"
        ]
    )
    assert load(given | {"REO_SOURCE_SASL_PASSWORD": "x"}).application == "orders-copy"


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


def kustomizations() -> list[Path]:
    """Every folder that kustomize is told of."""
    return sorted(path.parent for path in DEPLOY.rglob("kustomization.yaml"))


def referred(folder: Path) -> Iterator[Path]:
    """All that a kustomization names."""
    (told,) = documents(folder / "kustomization.yaml")
    yield from (folder / name for name in (*told.get("resources", ()), *told.get("components", ())))
    yield from (folder / patch["path"] for patch in told.get("patches", ()))
    yield from (
        folder / name
        for generator in told.get("configMapGenerator", ())
        for name in generator["envs"]
    )


@pytest.mark.parametrize("folder", kustomizations(), ids=named)
def test_a_kustomization_names_what_is_there(folder: Path) -> None:
    """Nothing is named that there is not, and nothing is left out."""
    named_files = list(referred(folder))
    assert [path for path in named_files if not path.exists()] == []
    assert {path for path in named_files if path.parent == folder} == {
        path for path in folder.iterdir() if path.name != "kustomization.yaml"
    }


@pytest.mark.parametrize("name", ["base", "example", "example-executors"])
def test_a_plain_cluster_takes_it(name: str) -> None:
    """What is applied has no kind that is not Kubernetes' own: an operator is needed only where its
    component is asked for.
    """
    seen, kinds = [DEPLOY / name], set()
    while seen:
        path = seen.pop()
        if path.is_dir():
            seen += referred(path)
        elif path.suffix == ".yaml" and isinstance(documents(path)[0], dict):
            kinds |= {thing["kind"] for thing in documents(path)}
    assert "Deployment" in kinds
    assert kinds & NOT_KUBERNETES == set()


def workload_patched() -> list[dict[str, Any]]:
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


def test_the_example_changes_what_is_there() -> None:
    """Its patch fits both stages, and its image and its replicas are the base's."""
    (told,) = documents(DEPLOY / "example" / "kustomization.yaml")
    base = {thing["metadata"]["name"]: thing for thing in map(workload, PODS[1:])}
    for thing in workload_patched():
        valid(thing, VERSIONS[-1])
    assert {entry["name"] for entry in told["replicas"]} <= set(base)
    images = {
        thing["spec"]["template"]["spec"]["containers"][0]["image"].split(":")[0]
        for thing in base.values()
    }
    assert {entry["name"] for entry in told["images"]} == images


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
    assert policy["podSelector"]["matchLabels"] == service["spec"]["selector"]
    assert [port["port"] for port in policy["ingress"][0]["ports"]] == [
        port["targetPort"] for port in service["spec"]["ports"]
    ]
    (told,) = documents(DEPLOY / "base" / "kustomization.yaml")
    assert (
        [entry["pairs"] for entry in told["labels"]]
        == [service["spec"]["selector"]]
        == [monitor["spec"]["selector"]["matchLabels"]]
    )


def kustomize() -> list[str]:
    """The command that builds: kustomize, or the one in kubectl if it knows components and
    replacements; empty where there is none.
    """
    if shutil.which("kustomize"):
        return ["kustomize", "build"]
    if not shutil.which("kubectl"):
        return []
    said = subprocess.run(
        ["kubectl", "version", "--client"], capture_output=True, text=True, check=False
    ).stdout
    found = re.search(r"Kustomize Version: v(\d+)\.", said)
    return ["kubectl", "kustomize"] if found and int(found[1]) >= 5 else []


@pytest.mark.skipif(
    not kustomize(),
    reason=(
        "neither kustomize nor a kubectl with kustomize 5; without it what it names and changes is"
        " held above"
    ),
)
@pytest.mark.parametrize(
    "folder",
    [
        path
        for path in kustomizations()
        if documents(path / "kustomization.yaml")[0]["kind"] == "Kustomization"
    ],
    ids=named,
)
def test_kustomize_makes_valid_objects(folder: Path) -> None:
    """The real thing: every object that it makes is valid, the pods find their settings, and
    executors have the image of the pod that asks for them.
    """
    made = subprocess.run(
        [*kustomize(), str(folder)], capture_output=True, text=True, check=True
    ).stdout
    things = [thing for thing in yaml.safe_load_all(made) if thing]
    for thing in things:
        if thing["kind"] not in NOT_KUBERNETES:
            valid(thing, VERSIONS[-1])
    (settings,) = (thing["metadata"]["name"] for thing in things if thing["kind"] == "ConfigMap")
    pods = [
        thing["spec"]["template"]
        for thing in things
        if thing["kind"] in ("Deployment", "StatefulSet")
    ]
    assert {pod["spec"]["containers"][0]["envFrom"][0]["configMapRef"]["name"] for pod in pods} == {
        settings
    }
    assert all(pod["metadata"]["labels"]["app.kubernetes.io/name"] == "reo" for pod in pods)
    accounts = {thing["metadata"]["name"] for thing in things if thing["kind"] == "ServiceAccount"}
    assert {
        pod["spec"]["serviceAccountName"]
        for pod in pods
        if pod["spec"]["automountServiceAccountToken"]
    } == accounts
    for container in (pod["spec"]["containers"][0] for pod in pods):
        images = {
            entry["value"]
            for entry in container["env"]
            if entry["name"].endswith("container_image")
        }
        assert images <= {container["image"]}
