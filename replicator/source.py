"""Reading the source topics: committed records only, from given offsets, and a failure when data is missing.

Options are those of the "Structured Streaming + Kafka Integration Guide"; every one that matters for safety is set, because
the defaults are `latest`, `read_uncommitted` and the broker's mercy.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson
from pyspark.sql import DataFrame, SparkSession

from common import client_options
from common.routes import Place
from common.settings import Settings
from replicator import memory


def options(settings: Settings, starts: Mapping[Place, int]) -> dict[str, str]:
    """The reader's options; `starts` are the first offsets, one per partition, and name all partitions that are read."""
    offsets: dict[str, dict[str, int]] = {}
    for place, offset in sorted(starts.items()):
        offsets.setdefault(place.topic, {})[str(place.partition)] = offset
    return {
        **settings.source.security.spark(),
        "kafka.bootstrap.servers": settings.source.bootstrap_servers,
        "kafka.client.id": f"{settings.client_id}-replicator-source",
        "kafka.isolation.level": "read_committed",  # aborted records are not the source's records
        "assign": orjson.dumps({topic: list(map(int, partitions)) for topic, partitions in offsets.items()}).decode(),  # not `subscribe`: a new run adds them
        "startingOffsets": orjson.dumps(offsets).decode(),
        "failOnDataLoss": "true",  # a gap is a stop, never a warning
        "includeHeaders": "true",
        "groupIdPrefix": f"{settings.application}-replicator",
        "kafka.fetch.min.bytes": str(settings.number("source.fetch_min_bytes")),
        "kafka.max.poll.records": "1000",
        "kafka.max.partition.fetch.bytes": str(memory.fetch_bytes(settings, len(starts))),
        "kafka.reconnect.backoff.max.ms": "1000",
        # One Spark task per Kafka partition is what the sequence numbers stand on: minPartitions, maxRecordsPerPartition and
        # speculation split a partition and are not set anywhere.
        **client_options.spark(settings.options("source.consumer_options")),
    }


def records(spark: SparkSession, settings: Settings, starts: Mapping[Place, int]) -> DataFrame:
    """The source's records as a streaming frame."""
    return spark.readStream.format("kafka").options(**options(settings, starts)).load()
