"""Read the source topics: committed records only, from explicit offsets, and with a failure when
data is missing.

The options are those of the "Structured Streaming + Kafka Integration Guide". Every option that
matters for safety is set, because the defaults are not safe: `latest`, for example, and
`read_uncommitted`.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson
from pyspark.sql import DataFrame, SparkSession

from common.routes import TopicPartition
from common.settings import Settings, client_options
from replicator.spark import memory, spark_master

FETCH_WAIT_MS, FETCH_WAIT_MAX_MS = 500, 10_000
"""Kafka's default, and a third of its default request timeout."""
FETCH_WAIT_MS_A_PARTITION = 5
"""So a source gets at most 200 fetches a second for nothing, up to 2,000 partitions."""


def build_options(settings: Settings, starts: Mapping[TopicPartition, int]) -> dict[str, str]:
    """The options of Spark's Kafka source. `starts` has the first offset of every partition to
    read.
    """
    tasks = spark_master.count_tasks(settings, len(starts))
    offsets: dict[str, dict[str, int]] = {}
    for tp, offset in sorted(starts.items()):
        offsets.setdefault(tp.topic, {})[str(tp.partition)] = offset
    return {
        **settings.source_cluster.security.build_spark_options(),
        "kafka.bootstrap.servers": settings.source_cluster.bootstrap_servers,
        "kafka.client.id": f"{settings.client_id}-replicator-source",
        # a Metadata request must not create a topic again that is deleted meanwhile
        "kafka.allow.auto.create.topics": "false",
        "kafka.isolation.level": "read_committed",  # aborted records are not copied
        # not `subscribe`: only a new run adds partitions
        "assign": (
            orjson.dumps(
                {topic: list(map(int, partitions)) for topic, partitions in offsets.items()}
            ).decode()
        ),
        "startingOffsets": orjson.dumps(offsets).decode(),
        "failOnDataLoss": "true",  # missing data is a failure, never a warning
        "includeHeaders": "true",
        "groupIdPrefix": f"{settings.application}-replicator",
        "kafka.fetch.min.bytes": str(settings.source.fetch_min_bytes),
        "kafka.fetch.max.wait.ms": str(
            compute_fetch_wait_ms(settings.source.fetch_min_bytes, len(starts))
        ),
        "kafka.max.poll.records": "1000",
        "kafka.max.partition.fetch.bytes": str(
            memory.compute_fetch_bytes(settings, tasks, len(starts))
        ),
        "kafka.reconnect.backoff.max.ms": "1000",
        # The sink needs one Spark task per Kafka partition, which reads it in order: minPartitions
        # and maxRecordsPerPartition would split a partition and are not set anywhere.
        **client_options.to_spark_options(settings.source.consumer_options),
    }


def compute_fetch_wait_ms(fetch_min_bytes: int, partitions: int) -> int:
    """How long a broker holds a fetch while it has nothing to return. Each partition has a consumer
    of its own, and with Kafka's default 2,000 of them send 4,000 fetches a second for nothing.

    A record is returned at once, unless `fetch_min_bytes` holds it back.
    """
    if fetch_min_bytes > 1:
        return FETCH_WAIT_MS
    return min(max(FETCH_WAIT_MS, FETCH_WAIT_MS_A_PARTITION * partitions), FETCH_WAIT_MAX_MS)


def read_records(
    spark: SparkSession, settings: Settings, starts: Mapping[TopicPartition, int]
) -> DataFrame:
    """The source's records as a streaming DataFrame."""
    return spark.readStream.format("kafka").options(**build_options(settings, starts)).load()
