"""Stage one's side of the intermediate topic: write wrapped records to it, at least once.

Spark's Kafka sink produces without transactions and learns late that a record failed. So holes and
late records happen, and stage two's rule handles them. The options here make the producer prevent
what it can.
"""

from __future__ import annotations

import tempfile

from pyspark.sql import DataFrame
from pyspark.sql.streaming import DataStreamWriter

from common.settings import Settings, client_options

BUFFER_MIN, BUFFER_MAX = 8 * 2**20, 64 * 2**20
COMPRESSED_MAX = 8
"""How many times smaller compression may make a record: the topic's limit applies to the compressed
batch.
"""


def compute_buffer_bytes(batch_bytes_max: int) -> int:
    """The producer's buffer.memory for topics with this limit on a batch: the largest record must
    fit in.

    It is not larger, because it is full whenever stage one is faster than the cluster. For each
    record in it the client keeps objects that the garbage collector copies again and again: with 64
    MB that took a third of stage one's time.
    """
    return max(
        min(max(COMPRESSED_MAX * batch_bytes_max, BUFFER_MIN), BUFFER_MAX),
        batch_bytes_max + BUFFER_MIN,
    )


def build_options(settings: Settings, batch_bytes_max: int) -> dict[str, str]:
    """The sink's options."""
    buffer = str(compute_buffer_bytes(batch_bytes_max))
    return {
        **settings.destination_cluster.security.build_spark_options(),
        "kafka.bootstrap.servers": settings.destination_cluster.bootstrap_servers,
        "kafka.client.id": f"{settings.client_id}-replicator-intermediate",
        "kafka.acks": "all",
        # no duplicates and no reordering by the producer's own retries
        "kafka.enable.idempotence": "true",
        # the most with which idempotence keeps order
        "kafka.max.in.flight.requests.per.connection": "5",
        # a record that is given up is a hole
        "kafka.delivery.timeout.ms": str(settings.producer.delivery_timeout_ms),
        "kafka.max.block.ms": "600000",
        "kafka.linger.ms": str(settings.producer.linger_ms),
        "kafka.batch.size": "131072",
        "kafka.buffer.memory": buffer,
        "kafka.max.request.size": buffer,  # the topic's max.message.bytes decides
        "kafka.compression.type": settings.producer.compression_type,
        "kafka.reconnect.backoff.max.ms": "1000",
        "includeHeaders": "true",
        **client_options.to_spark_options(settings.intermediate.producer_options),
    }


def create_writer(wrapped: DataFrame, settings: Settings, batch_bytes_max: int) -> DataStreamWriter:
    """The sink, with a checkpoint folder that no later run uses: a run begins at the frontier,
    never at Spark's own offsets.
    """
    checkpoint = tempfile.mkdtemp(prefix="reo-checkpoint-")
    return wrapped.writeStream.format("kafka").options(
        **{"checkpointLocation": checkpoint} | build_options(settings, batch_bytes_max)
    )
