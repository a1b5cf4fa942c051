"""Where stage one's tasks run (`replicator.master`), and Spark's configuration for it: in the
driver's own JVM, on a standalone cluster, or on Kubernetes.

Executors need no Python, because no Python function runs in them. On a standalone cluster they get
the connector's jars from the driver. On Kubernetes they run in reo's own image
(`replicator.spark.executor_command`), which has the jars. There is one executor more than the
partitions need: when one is lost, the others carry on alone until there is a new one. A core is a
thread that mostly waits, so a pod requests fewer cores from its node.
"""

from __future__ import annotations

import math
from pathlib import Path

from common.settings import Settings
from replicator.spark import class_archive, connector_jars, jvm_options, memory

TASKS_MAX = 200
"""Tasks of one executor, by default."""
CORES = "spark.executor.cores"
MEMORY_OVERHEAD_MB = 512
"""Memory of an executor outside its heap: classes (at most 256 MB), compiled code (at most 96 MB),
threads and network buffers.
"""
CLASS_PATH_END = "SPARK_DIST_CLASSPATH"
"""The variable whose value Spark's launcher appends to a JVM's class path
(AbstractCommandBuilder.buildClassPath).
"""
POD = Path(__file__).with_name("executor-pod.yaml")


def count_executors(partitions: int) -> int:
    """How many executors have TASKS_MAX tasks at most, and one more."""
    return math.ceil(partitions / TASKS_MAX) + 1


def count_cores(partitions: int) -> int:
    """The cores of each executor: when one of them is lost, the others have one for each
    partition.
    """
    return max(4, math.ceil(partitions / (count_executors(partitions) - 1)))


def count_slots(settings: Settings, partitions: int) -> int:
    """Real-Time Mode runs all tasks at once, one per partition; the other slots leave room for
    added partitions.
    """
    if not settings.replicator.master:
        return max(8, 2 * partitions)
    return count_executors(partitions) * count_cores(partitions)


def count_tasks(settings: Settings, partitions: int) -> int:
    """The tasks of one JVM at most."""
    if not settings.replicator.master:
        return partitions
    cores = settings.replicator.spark_options.get(CORES, count_cores(partitions))
    return min(partitions, int(cores))


def build_configuration(settings: Settings, partitions: int) -> dict[str, str]:
    """Spark's configuration for the master."""
    master = settings.replicator.master
    if not master:
        return _build_jar_options() | {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
    return _build_executor_options(settings, partitions) | (
        _build_kubernetes_configuration(settings, partitions)
        if master.startswith("k8s:")
        else _build_standalone_configuration(settings, partitions)
    )


def build_environment(settings: Settings) -> dict[str, str]:
    """Variables for the driver's JVM. Spark looks up the address of this host's name, and does not
    start where there is none (`docker run --network host --hostname …`). In local mode nobody needs
    it.
    """
    master = settings.replicator.master
    address = {} if master else {"SPARK_LOCAL_HOSTNAME": "127.0.0.1"}
    return address | ({} if master.startswith("spark:") else _build_class_path_end(settings))


def _build_class_path_end(settings: Settings) -> dict[str, str]:
    """Behind what the class archive was created for, and behind Spark's own jars."""
    jars = connector_jars.list_msk_jars(settings)
    return {CLASS_PATH_END: str(jars[0])} if jars else {}


def _build_jar_options() -> dict[str, str]:
    """For a driver that ships no jars: they are on the class path for which the class archive was
    created.
    """
    return {
        "spark.driver.extraClassPath": class_archive.build_class_path(),
        "spark.driver.defaultJavaOptions": " ".join(class_archive.build_options()),
    }


def _build_executor_options(settings: Settings, partitions: int) -> dict[str, str]:
    """Executors must reach the driver: Spark uses this host's name, SPARK_LOCAL_IP or
    spark.driver.host.
    """
    heap_mb = memory.compute_heap_mb(settings, count_tasks(settings, partitions), partitions)
    return {
        "spark.executor.memory": f"{heap_mb}m",
        "spark.executor.extraJavaOptions": jvm_options.build_options(heap_mb),
        "spark.task.maxFailures": "1",
    }


def _build_standalone_configuration(settings: Settings, partitions: int) -> dict[str, str]:
    # by default an executor takes all cores of its worker, however many these are
    cores = {CORES: str(count_cores(partitions))} if partitions > TASKS_MAX else {}
    return cores | {
        "spark.jars": ",".join(
            map(str, connector_jars.list_jars() + connector_jars.list_msk_jars(settings))
        ),
        # without it, an application takes the whole cluster
        "spark.cores.max": str(count_slots(settings, partitions)),
    }


def _build_kubernetes_configuration(settings: Settings, partitions: int) -> dict[str, str]:
    return _build_jar_options() | {
        "spark.executor.instances": str(count_executors(partitions)),
        CORES: str(count_cores(partitions)),
        "spark.executor.memoryOverhead": f"{MEMORY_OVERHEAD_MB}m",
        "spark.executorEnv.REO_LOG_FORMAT": settings.log.format,
        **{
            f"spark.executorEnv.{name}": value
            for name, value in _build_class_path_end(settings).items()
        },
        "spark.kubernetes.executor.request.cores": "1",
        "spark.kubernetes.executor.podTemplateFile": str(POD),
        # it would hold the driver's Spark files, which executors do not read
        "spark.kubernetes.executor.disableConfigMap": "true",
    }
