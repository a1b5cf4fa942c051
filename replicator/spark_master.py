"""Where stage one's tasks run (`replicator.master`), and what Spark is told for it: in the driver's own JVM, on a standalone cluster, on Kubernetes.

Executors need no Python: no function of Python is called in them. On a standalone cluster they take the connector's jars from the driver; on Kubernetes they
run in reo's own image (`replicator.executor`), which has the jars. Two executors of which each has a core for each partition: when one is lost, the other one
carries on alone until there is a new one. A core is a thread that mostly waits, so a pod does not ask for as many of its node.
"""

from __future__ import annotations

from pathlib import Path

from common.settings import Settings
from replicator import archive, jvm, memory

EXECUTORS = 2
BESIDE_THE_HEAP_MB = 512
"""Classes (256 MB at most), compiled code (96 MB at most), threads and network buffers of an executor."""
POD = Path(__file__).with_name("executor-pod.yaml")


def count_slots(partitions: int) -> int:
    """Real-Time Mode runs a task per partition at once; twice as many leave room for partitions that are added."""
    return max(8, 2 * partitions)


def build_configuration(settings: Settings, partitions: int) -> dict[str, str]:
    """What Spark is told of the place where tasks run."""
    master = settings.text("replicator.master")
    if not master:
        return _own_jars() | {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return _executors(settings, partitions) | (_on_kubernetes(settings, partitions) if master.startswith("k8s:") else _on_standalone(partitions))


def _own_jars() -> dict[str, str]:
    """A driver that ships no jars has them on the class path that `archive` was made for."""
    return {"spark.driver.extraClassPath": ":".join(map(str, archive.jars())), "spark.driver.defaultJavaOptions": " ".join(archive.options())}


def _executors(settings: Settings, partitions: int) -> dict[str, str]:
    """They have to reach the driver: Spark takes this host's name, or SPARK_LOCAL_IP, or spark.driver.host."""
    return {
        "spark.executor.memory": f"{memory.heap_mb(settings, partitions)}m",
        "spark.executor.extraJavaOptions": jvm.options(settings, partitions),
        "spark.task.maxFailures": "1",
    }


def _on_standalone(partitions: int) -> dict[str, str]:
    return {
        "spark.jars": ",".join(map(str, archive.jars())),
        "spark.cores.max": str(count_slots(partitions)),  # without it an application takes the whole cluster
    }


def _on_kubernetes(settings: Settings, partitions: int) -> dict[str, str]:
    return _own_jars() | {
        "spark.executor.instances": str(EXECUTORS),
        "spark.executor.cores": str(count_slots(partitions) // EXECUTORS),
        "spark.executor.memoryOverhead": f"{BESIDE_THE_HEAP_MB}m",
        "spark.executorEnv.REO_LOG_FORMAT": settings.text("log.format"),
        "spark.kubernetes.executor.request.cores": "1",
        "spark.kubernetes.executor.podTemplateFile": str(POD),
        "spark.kubernetes.executor.disableConfigMap": "true",  # it would hold the driver's files of Spark's, which executors do not read
    }
