"""`reo executor`: an executor of stage one, as Spark's scheduler on Kubernetes starts it in a pod
of reo's image (`replicator.master=k8s://…`).

Spark gives the container one argument, `executor`, and everything else in the environment
(BasicExecutorFeatureStep). Like entrypoint.sh in Spark's own image, this module builds the command
line of a JVM with KubernetesExecutorBackend from it, and replaces this process with that JVM. The
class path is the one for which the class archive was created, so an executor starts as fast as the
driver.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from common import logs
from common.errors import ReoError, SettingsInvalid
from replicator.spark import class_archive, java, jvm_options
from replicator.spark.spark_master import CLASS_PATH_END

MAIN = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
MEMORY = "SPARK_EXECUTOR_MEMORY"
JAVA_OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)")
CLASS_PATH = "SPARK_CLASSPATH"
"""spark.executor.extraClassPath; it comes before Spark's own class path."""


def build_command(environment: Mapping[str, str]) -> list[str]:
    """The JVM's command line, without its log option; SettingsInvalid when Spark has not set this
    environment.
    """
    missing = [name for name in (*ARGUMENTS.values(), MEMORY) if not environment.get(name)]
    if missing:
        raise SettingsInvalid(
            "Spark starts `reo executor` in its pods on Kubernetes (replicator.master=k8s://…); do"
            f" not start it by hand: {', '.join(missing)} missing in the environment"
        )
    java_options = sorted(
        (int(match[1]), text)
        for name, text in environment.items()
        if (match := JAVA_OPTION.fullmatch(name))
    )
    class_path = ":".join(
        filter(
            None,
            (
                environment.get(CLASS_PATH),
                class_archive.build_class_path(),
                environment.get(CLASS_PATH_END),
            ),
        )
    )
    arguments = [word for option, name in ARGUMENTS.items() for word in (option, environment[name])]
    return [
        java.get_command(),
        *class_archive.build_options(),
        *(text for _, text in java_options),
        f"-Xms{environment[MEMORY]}",
        f"-Xmx{environment[MEMORY]}",
        "-cp",
        class_path,
        MAIN,
        *arguments,
    ]


def run() -> int:
    """Replace this process with the executor; returns only when that fails."""
    try:
        program, *words = build_command(os.environ)
    except ReoError as error:
        logs.report_settings_error("reo", error, error.exit_code)
        return error.exit_code
    log_option = jvm_options.write_log_config(
        Path(tempfile.gettempdir()), os.environ.get("REO_LOG_FORMAT", "text"), jvm_options.EXECUTOR
    )
    # signals reach the JVM, and its exit code is the container's
    return os.execvp(program, [program, log_option, *words])  # noqa: S606
