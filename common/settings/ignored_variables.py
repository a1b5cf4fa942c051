"""Variables of kafka-reo and kafka-topic-mirror that have no effect here, and why. The start
reports each one that is set. No I/O.

Another program may use the same name, so a variable is reported only when the environment is
clearly that of kafka-reo or kafka-topic-mirror.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from common.settings import kafka_topic_mirror_variables

KAFKA_REO_PREFIX = "KAFKA_CLUSTERS_"
"""The prefix of kafka-reo's variables for its clusters."""
KAFKA_REO_VARIABLES = {
    "STREAMS_NUM_STANDBY_REPLICAS": (
        "there is no state store that could have a replica: all state is in the destination cluster"
    ),
    "STREAMS_BUFFER_CONFIG_MAX_BYTES": (
        "there is no buffer of Kafka Streams; to size the clients' buffers, use their raw options"
    ),
    "LOG_LEVEL": "it has no prefix, so it may be another program's: use REO_LOG_LEVEL",
}
TOPIC_MIRROR_VARIABLES = {
    "MAX_PUBLISH": "batches are bounded by deduplicator.transaction_records and by the clients",
}
IGNORED = KAFKA_REO_VARIABLES | TOPIC_MIRROR_VARIABLES


def list_ignored(environment: Mapping[str, str]) -> Iterator[str]:
    """One message for each variable that is set and has no effect."""
    is_kafka_reo = any(name.startswith(KAFKA_REO_PREFIX) for name in environment)
    is_topic_mirror = kafka_topic_mirror_variables.has_required(environment)
    names = [
        *(KAFKA_REO_VARIABLES if is_kafka_reo else ()),
        *(TOPIC_MIRROR_VARIABLES if is_topic_mirror else ()),
    ]
    yield from (f"{name} has no effect: {IGNORED[name]}" for name in names if environment.get(name))
