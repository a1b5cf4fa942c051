"""Builds, starts and kills the Spark session: a slot per partition, without the services that a
copy does not need.

By default Spark runs in local mode, and this JVM does all the work. With `replicator.master` it is
the driver, and executors elsewhere do the work (`replicator.spark.spark_master`). In both cases a
failed task fails its query at once, and a new run begins at the frontier (`spark.task.maxFailures`,
1 in local mode): Spark's own retry would rewrite everything that its batch has written, which is
minutes. When an executor is lost, Spark itself restarts its tasks, in the same batch and from the
same offsets: for the rule, the repeated envelopes are duplicates.

No state in the JVM is worth saving, so it is killed, not stopped: the next run rewrites what was
half written, and the rule drops the duplicates. When the Python process is killed, the
supervisor kills the JVM, with the rest of the stage's process group; when that is killed too, the
JVM ends because its standard input is closed. Executors end when they lose their driver; what a
frozen executor writes later is stale.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
from concurrent.futures import Future
from functools import reduce
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from common.errors import StageFailed
from common.parent_death_signal import kill_children
from common.settings import Settings, client_options
from common.suggestions import suggest
from replicator import query, sql_filter
from replicator.runs.run import Plan, Query
from replicator.spark import jvm_options, memory, spark_master

log = logging.getLogger(__name__)


def build_configuration(settings: Settings, partitions: int) -> dict[str, str]:
    """Spark's configuration. Raw options come last and win."""
    folder = Path(tempfile.gettempdir())
    log_option = jvm_options.write_log_config(folder, settings.log.format, jvm_options.DRIVER)
    tasks = 0 if settings.replicator.master else partitions  # a driver of executors runs none
    heap_mb = memory.compute_heap_mb(settings, tasks, partitions)
    slots = spark_master.count_slots(settings, partitions)
    return {
        "spark.master": settings.replicator.master or f"local[{slots}]",
        "spark.app.name": settings.application,
        "spark.driver.memory": f"{heap_mb}m",
        "spark.driver.extraJavaOptions": (
            # not /tmp: libraries unpack their native code here, and leave it when the JVM is killed
            f"{log_option} -Djava.io.tmpdir={folder} -Xms{heap_mb}m"
            f" {jvm_options.build_options(heap_mb)}"
        ),
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        # never logged
        "spark.redaction.regex": (
            "(?i)secret|password|passphrase|token|access[.]?key|private|jaas|keystore"
        ),
        "spark.rpc.netty.dispatcher.numThreads": "4",  # otherwise one for each slot
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.speculation": "false",  # each record would be written once more
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "false",  # not for streams: otherwise Spark logs a warning
        "spark.sql.streaming.realTimeMode.allowlistCheck": "false",  # see replicator.query
        # includes the causes, see `replicator.runs.end_reasons.describe_failure`
        "spark.sql.pyspark.jvmStacktrace.enabled": "true",
        "spark.sql.streaming.stopTimeout": "5s",
        # one for each partition; beyond it, Spark logs a warning at each use of the pool
        "spark.kafka.consumer.cache.capacity": str(max(64, slots)),
        **spark_master.build_configuration(settings, partitions),
        **settings.replicator.spark_options,
    }


def start_session(settings: Settings, partitions: int) -> SparkSession:
    """Start the JVM, which takes some seconds."""
    os.environ.update(spark_master.build_environment(settings))
    builder = SparkSession.builder
    for key, value in build_configuration(settings, partitions).items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
        _warn_of_unknown_options(spark, settings)
        sql_filter.check_condition(spark, settings.filter.sql)
    except (PySparkRuntimeError, Py4JError) as failed:
        raise StageFailed(
            "the JVM of stage one did not start: " + str(failed).split("\n\n", 1)[0]
        ) from None
    return spark


def _warn_of_unknown_options(spark: SparkSession, settings: Settings) -> None:
    """Warn of options that Kafka's Java client does not know: it ignores them, a mistyped one too.
    (A plug-in of the client may have its own.)
    """
    for name, raw_options, config in (
        ("source.consumer_options", settings.source.consumer_options, "consumer.ConsumerConfig"),
        (
            "intermediate.producer_options",
            settings.intermediate.producer_options,
            "producer.ProducerConfig",
        ),
    ):
        if not raw_options:
            continue
        known = set(
            reduce(
                getattr,
                config.split("."),
                spark.sparkContext._jvm.org.apache.kafka.clients,  # type: ignore[union-attr]
            ).configNames()
        )
        for option in raw_options:
            if option not in known and option not in client_options.SPARK_OPTIONS:
                log.warning(
                    "%s: %s is no option of Kafka's client%s: it is passed through, and probably"
                    " has no effect",
                    name,
                    option,
                    suggest(option, known),
                )


class Spark:
    """The engine of stage one (`replicator.runs.run.Engine`): a JVM that starts in a thread.

    The thread is a daemon: a process that is asked to stop does not wait for the JVM.
    """

    def __init__(self, settings: Settings, partitions: int) -> None:
        self.session: Future[SparkSession] = Future()
        threading.Thread(
            target=self._start_session, args=(settings, partitions), daemon=True, name="jvm"
        ).start()

    def count_slots(self) -> int | None:
        """How many tasks can run at once now: the cores of all live executors, or of the JVM in
        local mode.
        """
        if not self.session.done():
            return None
        spark = self.session.result()
        try:
            return int(spark.sparkContext.defaultParallelism)
        except (Py4JError, OSError) as lost:  # py4j raises the socket's own errors too
            raise StageFailed(f"the JVM of stage one is gone: {lost}") from None

    def start(self, plan: Plan) -> Query:
        """Start the query of a run."""
        return query.start_query(self.session.result(), plan)

    def close(self) -> None:
        """Kill the JVM: it does not outlive the process."""
        kill_children()

    def _start_session(self, settings: Settings, partitions: int) -> None:
        try:
            self.session.set_result(start_session(settings, partitions))
        except Exception as failed:  # any error is raised where the session is used
            self.session.set_exception(failed)
