"""What the Helm chart adds where a copy needs more than a few pods, with a real helm: executors of
stage one, and pods of stage two by its lag.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from common.settings import load
from tests.conftest import Start
from tests.e2e.test_executor import OPTIONS
from tests.harness.helm import ALL, ALL_NAME, LEAST, NEEDS_HELM, get_pod, render_chart
from tests.harness.kafka import Clusters, make_records
from tests.harness.kubernetes_api import KubernetesApi
from tests.harness.promql import problems
from tests.harness.service import build_environment
from tests.unit.project.test_kubernetes import (
    DEPLOY,
    VERSIONS,
    assert_restricted,
    environment,
    validate_object,
    workload,
)

pytestmark = NEEDS_HELM
EXECUTORS = LEAST | {"executors": {"enabled": True}}
PREFIX = "REO_REPLICATOR_SPARK_OPTIONS_"


def list_options(pod: dict[str, Any]) -> dict[str, str]:
    """The variables for executors that a pod has."""
    given = environment(pod["containers"][0])
    return {name: text for name, text in given.items() if name.startswith("REO_REPLICATOR_")}


def test_stage_one_may_start_executors(helm: str, package: Path) -> None:
    """And nobody else: only its pod has a token, of the account that the Role is for. Its variables
    are those of the manifests for kustomize, and the image is its own.
    """
    for values, component, account in (
        (EXECUTORS, "reo", "reo-orders"),
        (EXECUTORS | {"stages": "apart"}, "replicator", "reo-orders"),
        (EXECUTORS | {"serviceAccount": {"name": "mine"}}, "reo", "mine"),
    ):
        things = render_chart(helm, package, values)
        pod = get_pod(things, component)
        assert (pod["automountServiceAccountToken"], pod["serviceAccountName"]) == (True, account)
        assert (("ServiceAccount", account) in things) == (account != "mine")
        binding, role = (things[kind, "reo-orders-executors"] for kind in ("RoleBinding", "Role"))
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": account, "namespace": "default"}
        ]
        assert binding["roleRef"]["name"] == role["metadata"]["name"]
        documents = list(yaml.safe_load_all((DEPLOY / "executors" / "access.yaml").read_text()))
        assert role["rules"] == documents[1]["rules"]
        options = list_options(pod)
        image = options[f"{PREFIX}spark_kubernetes_container_image"]
        assert image == pod["containers"][0]["image"]
        operations = yaml.safe_load((DEPLOY / "executors" / "replicator.yaml").read_text())
        entries = [entry["value"] for entry in operations if entry["path"].endswith("/env/-")]
        assert environment({"env": entries}).items() - options.items() == {
            (f"{PREFIX}spark_kubernetes_container_image", "reo:latest")
        }
        loaded = load(
            options
            | {"REO_SOURCE_BOOTSTRAP_SERVERS": "a:1", "REO_SOURCE_TOPIC": "a"}
            | {"REO_DESTINATION_BOOTSTRAP_SERVERS": "b:1"}
        )
        assert (
            loaded.replicator.spark_options["spark.kubernetes.executor.podTemplateFile"]
            == "/settings/executor-pod.yaml"
        )
        if component == "replicator":
            two = get_pod(things, "deduplicator")
            assert two["automountServiceAccountToken"] is False
            assert not list_options(two)


def test_executors_are_made_from_the_charts_template(
    helm: str, package: Path, clusters: Clusters, topic: str, start: Start, tmp_path: Path
) -> None:
    """Spark asks for pods that are valid and restricted, and have what the values say of executors
    and of all pods; no Service selects them, the policy does, and they copy.
    """
    things = render_chart(helm, package, ALL)
    template = tmp_path / "executor-pod.yaml"
    template.write_text(things["ConfigMap", ALL_NAME]["data"]["executor-pod.yaml"])
    clusters.source.create(topic, 2)
    clusters.source.write(topic, make_records(range(200), 2))
    with KubernetesApi(tmp_path) as api:
        own = list_options(get_pod(things, "replicator"))
        own |= {f"{PREFIX}{name}": text for name, text in OPTIONS.items() if "image" not in name}
        own |= {
            "REO_REPLICATOR_MASTER": api.url,
            "REO_REPLICATOR_MEMORY_MB": "512",
            f"{PREFIX}spark_kubernetes_executor_podTemplateFile": str(template),
        }
        service = start(topic, environment=build_environment(clusters, topic, {}) | own)
        clusters.wait_for_copy(topic, 200)
        service.stop()
    asked = api.pods[0].asked
    spec, labels = asked["spec"], asked["metadata"]["labels"]
    for version in VERSIONS:
        validate_object(asked, version)
    assert spec["securityContext"] == ALL["podSecurityContext"]
    assert_restricted(spec | {"securityContext": spec["securityContext"] | {"runAsUser": 1}})
    (container,) = spec["containers"]
    assert (container["image"], container["imagePullPolicy"]) == (
        "registry.example.com/reo@sha256:0123",
        "IfNotPresent",
    )
    assert spec["nodeSelector"] == {"kubernetes.io/arch": "amd64", "pool": "spark"}
    assert spec["imagePullSecrets"] == ALL["imagePullSecrets"]
    assert (labels["cost"], labels["owner"]) == ("copy", "data")
    (spread,) = spec["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"].items() <= labels.items()

    assert not things["Service", ALL_NAME]["spec"]["selector"].items() <= labels.items()
    policy = things["NetworkPolicy", ALL_NAME]["spec"]
    (names,) = policy["podSelector"]["matchExpressions"]
    assert labels[names["key"]] in names["values"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    peers = [{"podSelector": policy["podSelector"]}]
    assert policy["ingress"][-1] == {"from": peers}
    assert policy["egress"][-1] == {"to": peers}


def test_lag_scales_stage_two(helm: str, package: Path) -> None:
    """KEDA's object is the manifest's with the values, and the chart says no number of pods beside
    it. It asks for the job that the ServiceMonitor makes, or docs/how-to/deploy.md without it.
    """
    things = render_chart(helm, package, ALL)
    name = f"{ALL_NAME}-deduplicator"
    scaled, two = things["ScaledObject", name]["spec"], things["StatefulSet", name]
    assert "replicas" not in two["spec"]
    apart = render_chart(helm, package, LEAST | {"stages": "apart"})
    assert apart["StatefulSet", "reo-orders-deduplicator"]["spec"]["replicas"] == 2
    target = scaled["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("StatefulSet", name)
    assert (scaled["minReplicaCount"], scaled["maxReplicaCount"]) == (2, 12)
    (trigger,) = scaled["triggers"]
    query = trigger["metadata"]["query"]
    assert problems(query, "") == []
    (job,) = re.findall('job=~"(.*?)"', query)
    service = things["Service", ALL_NAME]["metadata"]["name"]
    assert all(re.fullmatch(job, f"{prefix}{service}-default") for prefix in ("", "reo-"))
    manifest = workload(DEPLOY / "autoscaling" / "scaled-object.yaml")["spec"]
    assert trigger["metadata"] == manifest["triggers"][0]["metadata"] | {
        "serverAddress": "http://prometheus:9090",
        "threshold": "60",
        "query": query,
    }
    assert scaled["advanced"] == manifest["advanced"]
    together = LEAST | {"autoscaling": {"enabled": True}}
    assert not [kind for kind, _ in render_chart(helm, package, together) if "Scaled" in kind]
