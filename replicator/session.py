"""The JVM: a Spark session with a slot per partition, without the services that a copy does not need.

By default it is in local mode, and all work is done in it. With `replicator.master` it is the driver of a standalone cluster, whose executors
do the work. Either way a failed task fails its query at once and a new run begins at the frontier (`spark.task.maxFailures`, 1 in local
mode): Spark's own retry writes again all that its batch has written, which is minutes. The tasks of an executor that is lost Spark does
begin again by itself, in the same batch with the same numbers: what they repeat are duplicates to the rule.

Nothing in it is worth saving, so it is not stopped but killed: what was half written is written again by the next run and
dropped by the rule. A killed Python process takes it along too: it ends when its standard input is closed. Executors end when they lose
their driver; what a frozen one still writes later is stale.
"""

from __future__ import annotations

import logging
import tempfile
import threading
from concurrent.futures import Future
from difflib import get_close_matches
from functools import reduce
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from common import client_options
from common.errors import StageFailed
from common.settings import Settings
from replicator import archive, condition, memory

log = logging.getLogger(__name__)
LATE_OPTIMISER = ("-XX:Tier4InvocationThreshold=100000", "-XX:Tier4MinInvocationThreshold=12000", "-XX:Tier4CompileThreshold=300000",
                  "-XX:Tier4BackEdgeThreshold=800000")
"""Twenty times HotSpot's defaults: what runs for every record is optimised (C2) within a second of full load, and the rest of Spark's start is not, which
took a third of it."""
YOUNG_PERCENT = 60
"""Of the heap: nearly all that is made is a record on its way, and dies young. With HotSpot's third, much of it was copied to the old generation first."""
SURVIVORS = "-XX:MinSurvivorRatio=8"
"""With HotSpot's 3, what Spark takes for the heap is smaller by a third of the young generation, and an executor of 512 MB does not start."""
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
"""Where Kafka's Java client may ask for a token."""
LOG4J = """
# A failed query is reported once, by stage one; what is switched off says the same again, and for every query that is stopped.
rootLogger.level = warn
rootLogger.appenderRef.err.ref = err
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
logger.streaming.name = org.apache.spark.sql.execution.streaming
logger.streaming.level = error
logger.conf.name = org.apache.spark.SparkConf
logger.conf.level = error
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
logger.tasks.name = org.apache.spark.scheduler
logger.tasks.level = error
logger.executor.name = org.apache.spark.executor
logger.executor.level = off
logger.write.name = org.apache.spark.sql.execution.datasources
logger.write.level = off
logger.utils.name = org.apache.spark.util.Utils
logger.utils.level = off
logger.kafka.name = org.apache.kafka
logger.kafka.level = error
logger.stream.name = org.apache.spark.sql.catalyst
logger.stream.level = error
"""


LAYOUTS = {
    "text": r"""
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSSXXX}{UTC} %-7p replicator-jvm: %c{1}: %m%n%ex{short}
""",
    "json": r"""
appender.err.layout.type = JsonTemplateLayout
appender.err.layout.eventTemplate = {"time": {"$resolver": "timestamp", "pattern": {"format": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "timeZone": "UTC"}}, \
    "level": {"$resolver": "level", "field": "name"}, "stage": "replicator-jvm", "event": {"$resolver": "message", "stringified": true}, \
    "logger": {"$resolver": "logger", "field": "name"}, "exception": {"$resolver": "exception", "field": "message"}}
""",
}
"""As `common.logs` has them."""


def slots_for(partitions: int) -> int:
    """Real-Time Mode runs a task per partition at once; twice as many leave room for partitions that are added."""
    return max(8, 2 * partitions)


def in_this_jvm() -> dict[str, str]:
    """Local mode. On a cluster, executors have to reach the driver (Spark takes the host's name, or SPARK_LOCAL_IP) and take the jars from it."""
    return {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.extraClassPath": ":".join(map(str, archive.jars())),
            "spark.driver.defaultJavaOptions": " ".join(archive.options())}


def is_cluster(settings: Settings) -> bool:
    """Whether the tasks run elsewhere."""
    return bool(settings.text("replicator.master"))


def java_options(settings: Settings, partitions: int) -> str:
    """Of the driver and of executors."""
    token_urls = ",".join(filter(None, (cluster.security.sasl_oauth_token_url for cluster in (settings.source, settings.destination))))
    young_mb = YOUNG_PERCENT * memory.heap_mb(settings, partitions) // 100
    return " ".join([archive.COLLECTOR, f"-Xmn{young_mb}m", SURVIVORS, *LATE_OPTIMISER, "-XX:MaxMetaspaceSize=256m", "-XX:ReservedCodeCacheSize=96m",
                     "-Djava.net.preferIPv4Stack=true", f"-D{ALLOWED_URLS}={token_urls}"])


def on_cluster(settings: Settings, partitions: int) -> dict[str, str]:
    """What executors are given. They take the connector's jars from the driver and need no Python."""
    return {
        "spark.jars": ",".join(map(str, archive.jars())),
        "spark.cores.max": str(slots_for(partitions)),  # without it an application takes the whole cluster
        "spark.executor.memory": f"{memory.heap_mb(settings, partitions)}m",
        "spark.executor.extraJavaOptions": java_options(settings, partitions),
        "spark.task.maxFailures": "1",
    }


def slots(spark: SparkSession) -> int:
    """How many tasks can run at once now: the cores of the living executors, or of the JVM in local mode."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except (Py4JError, OSError) as lost:  # py4j raises the socket's own errors too
        raise StageFailed(f"the JVM of stage one is gone: {lost}") from None


def start(settings: Settings, partitions: int) -> SparkSession:
    """Start the JVM; takes some seconds."""
    folder = Path(tempfile.gettempdir())
    (folder / "log4j2.properties").write_text(LOG4J + LAYOUTS[settings.text("log.format")])
    heap_mb = memory.heap_mb(settings, partitions)
    configuration = {
        "spark.app.name": settings.application,
        "spark.driver.memory": f"{heap_mb}m",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={folder}/log4j2.properties -Xms{heap_mb}m {java_options(settings, partitions)}",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.redaction.regex": "(?i)secret|password|passphrase|token|access[.]?key|private|jaas|keystore",  # what no log may show
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.speculation": "false",  # a second attempt of a task at the same time would interleave two sequences
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "false",  # not for streams; only a warning otherwise
        "spark.sql.streaming.unsupportedOperationCheck": "false",  # see replicator.wrap
        "spark.sql.pyspark.jvmStacktrace.enabled": "true",  # has the causes, see `replicator.run.reason`
        "spark.sql.streaming.stopTimeout": "5s",
        "spark.kafka.consumer.cache.capacity": str(max(64, slots_for(partitions))),  # one for each partition; beyond it, each look at the pool is a warning
    }
    where = on_cluster(settings, partitions) if is_cluster(settings) else in_this_jvm()
    builder = SparkSession.builder.master(settings.text("replicator.master") or f"local[{slots_for(partitions)}]")
    for key, value in {**configuration, **where}.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
        _say_unknown_options(spark, settings)
        condition.check(spark, settings.text("filter.sql"))
    except (PySparkRuntimeError, Py4JError) as failed:
        raise StageFailed("the JVM of stage one did not start: " + str(failed).split("\n\n", 1)[0]) from None
    return spark


def _say_unknown_options(spark: SparkSession, settings: Settings) -> None:
    """Kafka's Java client reads what it knows and ignores the rest; a mistyped option would be ignored too. (A plug-in of the client may have its own.)"""
    for name, config in (("source.consumer_options", "consumer.ConsumerConfig"), ("intermediate.producer_options", "producer.ProducerConfig")):
        given = settings.options(name)
        if not given:
            continue
        known = set(reduce(getattr, config.split("."), spark.sparkContext._jvm.org.apache.kafka.clients).configNames())  # type: ignore[union-attr]
        for option in given:
            if option not in known and option not in client_options.SPARKS_OWN:
                near = get_close_matches(option, known, 1)
                log.warning("%s: %s is no option of Kafka's client%s: it is passed through, and probably nobody reads it", name, option,
                            f" (did you mean {near[0]}?)" if near else "")


def starting(settings: Settings, partitions: int) -> Future[SparkSession]:
    """Start the JVM beside other work. The thread is a daemon: a process that is told to stop does not wait for a JVM."""
    future: Future[SparkSession] = Future()

    def work() -> None:
        try:
            future.set_result(start(settings, partitions))
        except Exception as failed:  # whatever it is, who asks for the result gets it
            future.set_exception(failed)

    threading.Thread(target=work, daemon=True, name="jvm").start()
    return future
