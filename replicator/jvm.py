"""What every JVM of stage one is told: the driver's and the executors'. The collector, the compiler's thresholds and how a line of its log looks."""

from __future__ import annotations

from pathlib import Path

from common.settings import Settings
from replicator import archive, memory

LATE_OPTIMISER = ("-XX:Tier4InvocationThreshold=100000", "-XX:Tier4MinInvocationThreshold=12000", "-XX:Tier4CompileThreshold=300000",
                  "-XX:Tier4BackEdgeThreshold=800000")
"""Twenty times HotSpot's defaults: what runs for every record is optimised (C2) within a second of full load, and the rest of Spark's start is not, which
took a third of it."""
YOUNG_PERCENT = 60
"""Of the heap: nearly all that is made is a record on its way, and dies young. With HotSpot's third, much of it was copied to the old generation first."""
SURVIVORS = "-XX:MinSurvivorRatio=8"
"""With HotSpot's 3, what Spark takes for the heap is smaller by a third of the young generation, and an executor of 512 MB does not start."""
METASPACE = ("-XX:MetaspaceSize=192m", "-XX:MaxMetaspaceSize=256m")
"""From the first figure on HotSpot collects the whole heap for the sake of classes; its own, 21 MB, is met in the middle of the start (0.15 s)."""
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
"""Where Kafka's Java client may ask for a token."""
LOG = """
# A failed query is reported once, by stage one; what is switched off says the same again, and for every query that is stopped.
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
QUIET = {EXECUTOR: "", DRIVER: """
logger.streaming.name = org.apache.spark.sql.execution.streaming
logger.streaming.level = error
logger.conf.name = org.apache.spark.SparkConf
logger.conf.level = error
logger.tasks.name = org.apache.spark.scheduler
logger.tasks.level = error
# Why no executor comes.
logger.pods.name = org.apache.spark.scheduler.cluster.k8s
logger.pods.level = warn
logger.executor.name = org.apache.spark.executor
logger.executor.level = off
logger.stream.name = org.apache.spark.sql.catalyst
logger.stream.level = error
"""}
LAYOUTS = {
    "text": r"""
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSSXXX}{UTC} %-7p STAGE: %c{1}: %m%n%ex{short}
""",
    "json": r"""
appender.err.layout.type = JsonTemplateLayout
appender.err.layout.eventTemplate = {"time": {"$resolver": "timestamp", "pattern": {"format": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "timeZone": "UTC"}}, \
    "level": {"$resolver": "level", "field": "name"}, "stage": "STAGE", "event": {"$resolver": "message", "stringified": true}, \
    "logger": {"$resolver": "logger", "field": "name"}, "exception": {"$resolver": "exception", "field": "message"}}
""",
}
"""As `common.logs` has them."""


def options(settings: Settings, partitions: int) -> str:
    """Of the driver and of executors; without the heap's size, which Spark gives."""
    token_urls = ",".join(filter(None, (cluster.security.sasl_oauth_token_url for cluster in (settings.source, settings.destination))))
    young_mb = YOUNG_PERCENT * memory.heap_mb(settings, partitions) // 100
    return " ".join([archive.COLLECTOR, f"-Xmn{young_mb}m", SURVIVORS, *LATE_OPTIMISER, *METASPACE, "-XX:ReservedCodeCacheSize=96m",
                     "-Djava.net.preferIPv4Stack=true", f"-D{ALLOWED_URLS}={token_urls}"])


def log_option(folder: Path, form: str, stage: str) -> str:
    """Write down how `stage` logs (`log.format`) and return the option that says where."""
    file = folder / "log4j2.properties"
    file.write_text(LOG + QUIET[stage] + LAYOUTS[form].replace("STAGE", stage))
    return f"-Dlog4j2.configurationFile={file}"
