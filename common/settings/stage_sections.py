"""The settings of the two stages, and of what both write with: how much work is done at a time, by
how many, and for how long it is tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from common.settings.declaration import declare, declare_options


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """What the stages write with. A setting of stage one alone says so."""

    linger_ms: int = declare(
        0,
        "How long stage one's producer waits for more envelopes before it sends some.",
        "KAFKA_CONFIG_PRODUCER_LINGER_MS",
        maximum=1000,
    )
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] = declare(
        "none",
        "Of what both stages write; gzip is the slowest.",
        "KAFKA_CONFIG_PRODUCER_COMPRESSION_TYPE",
    )
    delivery_timeout_ms: int = declare(
        604_800_000,
        "How long stage one tries to deliver an envelope (7 days). Stage two tries for one"
        " transaction, then aborts and does it again, without end.",
        "KAFKA_CONFIG_PRODUCER_DELIVERY_TIMEOUT_MS",
        minimum=120_000,
    )
    acks: Literal["all", "-1"] = declare(
        "all",
        "Only `all` is accepted: with less, an acknowledged record can be lost.",
        "KAFKA_CONFIG_PRODUCER_ACKS",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicator:
    """Stage one."""

    memory_mb: int | None = declare(
        None,
        "Heap of stage one's JVM; Spark does not start with less than 512. Default: 512, and 8 more"
        " for each partition beyond 16 that the source has at the start.",
        minimum=512,
        maximum=1_048_576,
    )
    master: str = declare(
        "",
        "Where stage one's tasks run: `spark://host:port` of a standalone cluster or"
        " `k8s://https://host:port` of Kubernetes, with a core for each partition of the source,"
        " see [Stage one on a cluster](how-to/spark.md). Default: `local[n]`, in its own JVM.",
    )
    spark_options: dict[str, str] = declare_options(
        "stage one's Spark; their names keep upper and lower case"
    )
    batch_s: int = declare(
        300,
        "Length of a Real-Time-Mode batch. Each boundary stalls the flow for 0.3-0.5 s.",
        minimum=5,
        maximum=86_400,
    )
    envelope_bytes: int = declare(
        122_880,
        "At this size stage one sends an envelope. Larger ones cost less processor time for each"
        " record, until the intermediate topic's `max.message.bytes`.",
        minimum=1024,
        maximum=8_388_608,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Deduplicator:
    """Stage two."""

    workers: int = declare(
        1,
        "Processes of stage two in this instance; they share the partitions.",
        "STREAMS_NUM_STREAM_THREADS",
        minimum=1,
        maximum=64,
    )
    group_protocol: Literal["classic", "consumer"] = declare(
        "classic",
        "`classic`, or `consumer` (KIP-848), with which a killed worker's partitions wait for "
        "the broker's session timeout.",
    )
    session_timeout_ms: int = declare(
        10_000,
        "Without a heartbeat for this long, a worker is no member of the group any more: others get"
        " its partitions (classic protocol).",
        minimum=1000,
    )
    transaction_timeout_ms: int = declare(
        20_000,
        "A dead worker's open transaction blocks read_committed readers of the destination for this"
        " long, plus up to 10 s.",
        minimum=5000,
        maximum=900_000,
    )
    transaction_records: int = declare(
        20_000, "Maximum number of records of one transaction.", minimum=1, maximum=90_000
    )
    compiled: bool = declare(
        True,
        "`false`: Python does the work of stage two's compiled path, more slowly, with the same"
        " results. `reo check` says which one is used.",
    )
    without_frontier: Literal["refuse", "append"] = declare(
        "refuse",
        "A destination with records but no frontier: `refuse` stops, `append` copies from "
        "`source.start` after them.",
    )
