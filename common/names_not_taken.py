"""Variables of kafka-reo and kafka-topic-mirror that have no effect here, and why; the start names each one that is set. Pure.

Such a name may be another program's, so it is named only where the environment is clearly that program's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from common import mirror_names

KAFKA_REO = "KAFKA_CLUSTERS_"
"""What the names of kafka-reo's clusters begin with."""
OF_KAFKA_REO = {
    "STREAMS_NUM_STANDBY_REPLICAS": "there is no state store that could have a replica: all state is in the destination cluster",
    "STREAMS_BUFFER_CONFIG_MAX_BYTES": "there is no buffer of Kafka Streams; the clients' buffers are their raw options",
    "LOG_LEVEL": "it has no prefix, so it may be another program's: use REO_LOG_LEVEL",
}
OF_MIRROR = {
    "MAX_PUBLISH": "batches are bounded by deduplicator.transaction_records and by the clients",
}
NOT_TAKEN = OF_KAFKA_REO | OF_MIRROR


def list_not_taken(environment: Mapping[str, str]) -> Iterator[str]:
    """One message for each variable that is set and has no effect."""
    names = [*(OF_KAFKA_REO if any(name.startswith(KAFKA_REO) for name in environment) else ()), *(OF_MIRROR if mirror_names.are_meant(environment) else ())]
    yield from (f"{name} has no effect: {NOT_TAKEN[name]}" for name in names if environment.get(name))
