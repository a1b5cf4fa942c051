"""`reo executor`: an executor of stage one, as Spark's scheduler on Kubernetes starts it in a pod of reo's image (`replicator.master=k8s://…`).

Spark gives the container the one argument `executor` and everything else in the environment (BasicExecutorFeatureStep); what Spark's own image makes of it
(entrypoint.sh) is made of it here: the command line of a JVM with KubernetesExecutorBackend, which takes this process's place. The class path is the one that
the archive of classes was made for, so an executor starts as quickly as the driver.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from common import logs
from common.errors import ReoError, SettingsInvalid
from replicator import archive, jvm

MAIN = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL", "--executor-id": "SPARK_EXECUTOR_ID", "--cores": "SPARK_EXECUTOR_CORES", "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP", "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID", "--podName": "SPARK_EXECUTOR_POD_NAME",
}
MEMORY = "SPARK_EXECUTOR_MEMORY"
JAVA_OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)")
CLASS_PATH = "SPARK_CLASSPATH"
"""spark.executor.extraClassPath, which stands before Spark's own."""


def command(environment: Mapping[str, str]) -> list[str]:
    """The JVM's command line, without its log's option; SettingsInvalid when this is no environment of Spark's."""
    missing = [name for name in (*ARGUMENTS.values(), MEMORY) if not environment.get(name)]
    if missing:
        raise SettingsInvalid(f"`reo executor` is started by Spark in its pods on Kubernetes (replicator.master=k8s://…), never by hand: "
                              f"{', '.join(missing)} missing in the environment")
    numbered = sorted((int(found[1]), text) for name, text in environment.items() if (found := JAVA_OPTION.fullmatch(name)))
    class_path = ":".join(filter(None, (environment.get(CLASS_PATH), archive.class_path())))
    arguments = [word for option, name in ARGUMENTS.items() for word in (option, environment[name])]
    return ["java", *archive.options(), *(text for _, text in numbered), f"-Xms{environment[MEMORY]}", f"-Xmx{environment[MEMORY]}", "-cp", class_path,
            MAIN, *arguments]


def run() -> int:
    """Become the executor; returns only when it cannot be one."""
    try:
        java, *words = command(os.environ)
    except ReoError as wrong:
        logs.without_settings("reo", wrong, wrong.exit_code)
        return wrong.exit_code
    log_option = jvm.log_option(Path(tempfile.gettempdir()), os.environ.get("REO_LOG_FORMAT", "text"), jvm.EXECUTOR)
    return os.execvp(java, [java, log_option, *words])  # noqa: S606  (signals reach the JVM, and its exit code is the container's)
