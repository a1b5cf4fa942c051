"""Raw options of Spark itself (`replicator.spark_options`), and what a cluster as
`replicator.master` needs of them.

They go to Spark as they are and win over what reo would set, but for those in `GUARDS`. Spark tells
upper and lower case apart, so names keep theirs, in a file and in a variable:
`spark.kubernetes.driver.pod.name` is
`REO_REPLICATOR_SPARK_OPTIONS_spark_kubernetes_driver_pod_name`. Sources: Spark's "Configuration",
"Running Spark on Kubernetes" and "Spark Standalone Mode".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from common.settings.option_guard import Guard

SETTING = "replicator.spark_options"
NAME = re.compile(r"spark(\.[A-Za-z0-9_/-]+)+")
STANDALONE = re.compile(r"spark://[^\s/,:]+:[0-9]{1,5}(,[^\s/,:]+:[0-9]{1,5})*")
"""Several addresses are one cluster with standby masters."""
KUBERNETES = re.compile(r"k8s://https?://[^\s/,]+")
"""The address of the API server; in a pod `k8s://https://kubernetes.default.svc`."""
IMAGES = ("spark.kubernetes.container.image", "spark.kubernetes.executor.container.image")

_JARS = Guard(
    "the jars of Spark's Kafka connector are given there: put others into the folder that"
    " `reo setup` prints, then run `reo setup` again",
    always=True,
)
_JAVA = Guard(
    "reo's own are given there: use spark.driver.defaultJavaOptions and"
    " spark.executor.defaultJavaOptions, which stand before them",
    always=True,
)
_MEMORY = Guard(
    "the fetch size and the garbage collector's generations are computed from it: use"
    " replicator.memory_mb"
)
_SLOTS = Guard(
    "a run begins when there is a core for each partition, which is counted by it", "1", always=True
)
_CLASSIC = Guard("stage one needs the JVM itself, not a server of Spark's", "classic", always=True)
_EXTENSION = Guard("an extension can change or hold back records")
GUARDS: Mapping[str, Guard] = {
    "spark.master": Guard("use replicator.master", always=True),
    "spark.submit.deployMode": Guard(
        "the driver is stage one's own process", "client", always=True
    ),
    **dict.fromkeys(("spark.remote", "spark.api.mode"), _CLASSIC),
    **dict.fromkeys(("spark.jars", "spark.driver.extraClassPath"), _JARS),
    **dict.fromkeys(("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"), _JAVA),
    **dict.fromkeys(("spark.driver.memory", "spark.executor.memory"), _MEMORY),
    "spark.task.cpus": _SLOTS,
    "spark.default.parallelism": Guard(_SLOTS.reason, always=True),
    "spark.dynamicAllocation.enabled": Guard(
        "a run begins when there is a core for each partition, and executors would come when it has"
        " begun",
        "false",
    ),
    "spark.speculation": Guard(
        "a second attempt of a task at the same time would write every record once more",
        "false",
    ),
    "spark.sql.streaming.realTimeMode.allowlistCheck": Guard(
        "Spark knows its own sinks only and would refuse stage one's", "false", always=True
    ),
    "spark.sql.ansi.enabled": Guard(
        "filter.sql would silently leave out what it cannot decide", "true"
    ),
    **dict.fromkeys(("spark.sql.extensions", "spark.plugins"), _EXTENSION),
    "spark.redaction.regex": Guard("secrets would be in the log"),
}


def find_errors(master: str, options: Mapping[str, str]) -> Iterator[str]:
    """What is missing or malformed for tasks that run elsewhere."""
    if master and not STANDALONE.fullmatch(master) and not KUBERNETES.fullmatch(master):
        yield (
            "replicator.master: spark://host:port or k8s://https://host:port is expected, not"
            f" {master!r}"
        )
    if KUBERNETES.fullmatch(master) and not any(options.get(image) for image in IMAGES):
        yield (
            f"{SETTING}: {IMAGES[0]} is missing: with {master} executors run in pods, of the image"
            " that stage one runs in"
        )
