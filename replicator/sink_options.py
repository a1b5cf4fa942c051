"""Stage one's side of the intermediate topic: write what was read as envelopes, at least once.

The sink is `replicator/spark/sink/`, in Java; this module tells it what to write where. It decides
by itself how much is in an envelope. Its producer sends without transactions: an envelope may be
written twice, or be lost with what follows it, and stage two's rule handles both. The options here
make the producer prevent what it can.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection

from pyspark.sql import DataFrame
from pyspark.sql.streaming import DataStreamWriter

from common.kafka.clients import BATCH_OVERHEAD_BYTES
from common.settings import Settings, client_options
from replicator.runs.run import Plan

SINK = "reo.EnvelopeSink"
BUFFER_MIN, BUFFER_MAX = 32 * 2**20, 64 * 2**20
COMPRESSED_MAX = 8
"""How many times smaller compression may make a record: the topic's limit applies to the compressed
batch.
"""


def compute_buffer_bytes(message_bytes_max: int) -> int:
    """The producer's buffer.memory for topics with this limit on a batch: the largest record must
    fit in.
    """
    return max(
        min(max(COMPRESSED_MAX * message_bytes_max, BUFFER_MIN), BUFFER_MAX),
        message_bytes_max + BUFFER_MIN,
    )


def build_producer_options(
    settings: Settings, message_bytes_max: Collection[int]
) -> dict[str, str]:
    """The options of the sink's producer, in Spark's form, for topics with these limits."""
    buffer = str(compute_buffer_bytes(max(message_bytes_max)))
    return {
        **settings.destination_cluster.security.build_spark_options(),
        "kafka.bootstrap.servers": settings.destination_cluster.bootstrap_servers,
        "kafka.client.id": f"{settings.client_id}-replicator-intermediate",
        "kafka.acks": "all",
        # no duplicates and no reordering by the producer's own retries
        "kafka.enable.idempotence": "true",
        # the most with which idempotence keeps order
        "kafka.max.in.flight.requests.per.connection": "5",
        # an envelope that is given up is a gap
        "kafka.delivery.timeout.ms": str(settings.producer.delivery_timeout_ms),
        "kafka.max.block.ms": "600000",
        "kafka.linger.ms": str(settings.producer.linger_ms),
        # A full envelope is a batch. Beyond a topic's limit, the broker would refuse a batch of
        # several envelopes, and the producer would split it.
        "kafka.batch.size": str(
            min(settings.replicator.envelope_bytes + BATCH_OVERHEAD_BYTES, *message_bytes_max)
        ),
        "kafka.buffer.memory": buffer,
        "kafka.max.request.size": buffer,  # the topic's max.message.bytes decides
        "kafka.compression.type": settings.producer.compression_type,
        "kafka.reconnect.backoff.max.ms": "1000",
        **client_options.to_spark_options(settings.intermediate.producer_options),
    }


def build_options(plan: Plan) -> dict[str, str]:
    """The sink's options (SinkOptions.java)."""
    at_source = plan.map_source_partitions()
    return build_producer_options(plan.settings, plan.message_bytes_max.values()) | {
        "epoch": str(plan.epoch),
        "routes": "\n".join(
            f"{route.source_topic}\t{identity}\t{route.intermediate_topic}"
            f"\t{_compute_envelope_bytes(plan, route.intermediate_topic)}"
            f"\t{route.partitions.first}"
            for route, identity in plan.identities.items()
        ),
        "starts": "\n".join(
            f"{at_source[tp].topic}\t{at_source[tp].partition}\t{offset}"
            for tp, offset in plan.start_offsets.items()
        ),
    }


def create_writer(records: DataFrame, plan: Plan) -> DataStreamWriter:
    """The sink, with a checkpoint folder that no later run uses: a run begins at the frontier,
    never at Spark's own offsets.
    """
    checkpoint = tempfile.mkdtemp(prefix="reo-checkpoint-")
    return records.writeStream.format(SINK).options(
        **{"checkpointLocation": checkpoint} | build_options(plan)
    )


def _compute_envelope_bytes(plan: Plan, intermediate_topic: str) -> int:
    """How large an envelope with several records can be. A larger record has one of its own, also
    when the topic then refuses it.
    """
    return min(
        plan.settings.replicator.envelope_bytes,
        max(0, plan.message_bytes_max[intermediate_topic] - BATCH_OVERHEAD_BYTES),
    )
