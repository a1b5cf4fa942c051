"""The options of every JVM of stage one, the driver's and the executors': garbage collector, JIT
thresholds and log layout.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from replicator.spark import class_archive

LATE_OPTIMISER = (
    "-XX:Tier4InvocationThreshold=100000",
    "-XX:Tier4MinInvocationThreshold=12000",
    "-XX:Tier4CompileThreshold=300000",
    "-XX:Tier4BackEdgeThreshold=800000",
)
"""Twenty times HotSpot's defaults. Code that runs for every record is still optimised (C2) within a
second of full load. The rest of Spark's start is not: its optimisation took a third of the start.
"""
YOUNG_PERCENT = 60
"""Of the heap. Nearly all objects are records in transit and die young. With HotSpot's default, a
third, many were first copied to the old generation.
"""
SURVIVORS = "-XX:MinSurvivorRatio=8"
"""With HotSpot's default, 3, the heap that Spark measures is smaller by a third of the young
generation, and an executor of 512 MB does not start.
"""
METASPACE = ("-XX:MetaspaceSize=192m", "-XX:MaxMetaspaceSize=256m")
"""At MetaspaceSize HotSpot collects the whole heap to unload classes. Its default, 21 MB, is
reached in the middle of the start (0.15 s).
"""
TIME_ZONE = "-Duser.timezone=UTC"
"""Spark's Kafka source converts each timestamp in the JVM's time zone, whatever Spark's own is. It
changes those before 1900 by some minutes in most zones: before standard time, Java's old calendar
does not have the local mean time that its new one has.
"""
LOG = """
# Stage one reports a failed query once; the loggers that are off repeat it, and also log every
# query that is stopped.
rootLogger.level = warn
rootLogger.appenderRef.err.ref = err
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
logger.kafka.name = org.apache.kafka
logger.kafka.level = error
logger.write.name = org.apache.spark.sql.execution.datasources
logger.write.level = off
logger.utils.name = org.apache.spark.util.Utils
logger.utils.level = off
"""
DRIVER = "replicator-jvm"
EXECUTOR = "replicator-executor"
QUIET = {
    EXECUTOR: "",
    DRIVER: (
        """
logger.streaming.name = org.apache.spark.sql.execution.streaming
logger.streaming.level = error
logger.conf.name = org.apache.spark.SparkConf
logger.conf.level = error
logger.tasks.name = org.apache.spark.scheduler
logger.tasks.level = error
# Tells why no executor starts.
logger.pods.name = org.apache.spark.scheduler.cluster.k8s
logger.pods.level = warn
logger.executor.name = org.apache.spark.executor
logger.executor.level = off
logger.stream.name = org.apache.spark.sql.catalyst
logger.stream.level = error
"""
    ),
}
LAYOUTS = {
    "text": r"""
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = \
    %d{yyyy-MM-dd'T'HH:mm:ss.SSSXXX}{UTC} %-7p STAGE: %c{1}: %m%n%ex{short}
""",
    "json": r"""
appender.err.layout.type = JsonTemplateLayout
appender.err.layout.eventTemplate = {"time": {"$resolver": "timestamp", \
    "pattern": {"format": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "timeZone": "UTC"}}, \
    "level": {"$resolver": "level", "field": "name"}, "stage": "STAGE", \
    "event": {"$resolver": "message", "stringified": true}, \
    "logger": {"$resolver": "logger", "field": "name"}, \
    "exception": {"$resolver": "exception", "field": "message"}}
""",
}
"""The same layouts as in `common.logs`."""


def build_options(heap_mb: int) -> str:
    """The options of the driver and of executors, without the heap size, which Spark sets."""
    young_mb = YOUNG_PERCENT * heap_mb // 100
    return " ".join(
        [
            class_archive.COLLECTOR,
            f"-Xmn{young_mb}m",
            SURVIVORS,
            *LATE_OPTIMISER,
            *METASPACE,
            "-XX:ReservedCodeCacheSize=96m",
            TIME_ZONE,
        ]
    )


def write_log_config(folder: Path, layout: str, stage: str) -> str:
    """Write the log4j2 configuration of `stage` with a layout (`log.format`), and return the JVM
    option that names the file.

    The file's name is new each time: a JVM that starts beside this one, in the same folder, has its
    own.
    """
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", prefix="log4j2-", suffix=".properties", dir=folder, delete=False
    ) as config:
        config.write(LOG + QUIET[stage] + LAYOUTS[layout].replace("STAGE", stage))
    return f"-Dlog4j2.configurationFile={config.name}"
