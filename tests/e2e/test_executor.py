"""Stage one on Kubernetes, as far as a machine without one can show it: Spark's own scheduler for
Kubernetes asks a small stand-in of its API for pods, and `reo executor` with a pod's arguments and
environment is an executor that copies exactly. It was never tried on a real Kubernetes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Start
from tests.harness.kafka import COPY_S, Clusters, make_records, until
from tests.harness.kubernetes_api import DRIVER, KubernetesApi
from tests.harness.service import build_environment
from tests.unit.project.test_kubernetes import VERSIONS, assert_restricted, validate_object

IMAGE = "registry.example.com/reo:0.1.0"
PARTITIONS = 3
OPTIONS = {
    "spark_kubernetes_container_image": IMAGE,
    "spark_kubernetes_namespace": "copies",
    "spark_kubernetes_driver_pod_name": DRIVER,
    "spark_driver_host": "127.0.0.1",
    "spark_executor_memoryOverhead": "300m",
    "spark_kubernetes_executor_enableApiWatcher": "false",
    "spark_kubernetes_executor_apiPollingInterval": "500ms",
}
"""As deploy/kubernetes/executors gives them; the stand-in has no watch, so it is asked more
often.
"""


@pytest.mark.long
def test_pods_that_sparks_scheduler_asks_for_copy_exactly(
    clusters: Clusters, topic: str, start: Start, tmp_path: Path
) -> None:
    """Executors are `reo executor`; all but one are killed, and another takes their place. Each pod
    is valid, restricted, of the image, and the driver's.
    """
    clusters.source.create(topic, PARTITIONS)
    clusters.source.write(topic, make_records(range(3000), PARTITIONS))
    with KubernetesApi(tmp_path) as api:
        environment = build_environment(
            clusters,
            topic,
            {
                "replicator_master": api.url,
                "replicator_memory_mb": "512",
            },
        )
        service = start(
            topic,
            environment=environment
            | {f"REO_REPLICATOR_SPARK_OPTIONS_{name}": text for name, text in OPTIONS.items()},
        )
        clusters.wait_for_copy(topic, 3000)
        pods = [pod for pod in api.pods if pod.process.poll() is None]
        assert len(pods) >= 2  # Spark asks for one more when one of them needs long to begin
        asked = len(api.pods)  # before the kills: another may be asked for at once
        for pod in pods[1:]:
            pod.process.kill()
        until(
            lambda: len(api.pods) > asked,
            "Spark asks for another pod",
            COPY_S,
            [service.read_log_tail()],
        )
        clusters.source.write(topic, make_records(range(3000, 5000), PARTITIONS))
        clusters.wait_for_copy(topic, 5000)
        service.stop()
        until(
            lambda: all(pod.process.poll() is not None for pod in api.pods),
            "executors end with their driver",
        )
    for pod in api.pods:
        for version in VERSIONS:
            validate_object(pod.asked, version)
        assert_restricted(pod.asked["spec"])
        (container,) = pod.asked["spec"]["containers"]
        assert (container["image"], container["args"]) == (IMAGE, ["executor"])
        assert (container["resources"]["requests"]["cpu"], container["resources"]["limits"]) == (
            "1",
            {"memory": "812Mi"},
        )
        assert [owner["name"] for owner in pod.asked["metadata"]["ownerReferences"]] == [DRIVER]
        assert pod.asked["metadata"]["namespace"] == "copies"
