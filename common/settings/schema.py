"""Every setting: name, type, default, range, other names, meaning. docs/reference.md and the Helm
chart's schema have it from here.

A setting has one dotted name: in the code `settings.section.key`, in a settings file `[section]
key`, in the environment `REO_SECTION_KEY` and, where kafka-reo has the same setting, also
kafka-reo's name. Two names have an underscore at their end in the code alone: `class` is a keyword
of Python, and `topics` is also a section. Defaults are kafka-reo's unless there is a reason against
it; the meaning then says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from common.settings.declaration import declare, declare_options
from common.settings.security import Security


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The source cluster, or with `source.mode=failover` several, and how one of them is chosen."""

    bootstrap_servers: str = declare(
        "",
        "Brokers of the source cluster, `host:port,…`; with `source.mode=failover` of several"
        " identical clusters, separated by `;`.",
        "KAFKA_CLUSTERS_SOURCE_BOOTSTRAP_SERVERS",
        required=True,
    )
    topic: str = declare(
        "", "The topic to copy. For several: `topics`.", "KAFKA_CLUSTERS_SOURCE_TOPIC"
    )
    start: str = declare(
        "earliest",
        "Where a copy without a frontier begins: `earliest`, `latest`, a timestamp (ms since 1970"
        " UTC, or ISO 8601 like `2026-01-31T08:00:00Z`), or an offset for each partition"
        " (`0=120,1=77`; those not named begin at `earliest`). With `latest`, what appears after"
        " the service has its first frontiers is copied whole.",
        "KAFKA_CONFIG_CONSUMER_AUTO_RESET",
        kind="start",
    )
    fetch_min_bytes: int = declare(
        1,
        "Least bytes of an answer to a fetch from the source. kafka-reo: 1048576, which costs"
        " latency.",
        "KAFKA_CONFIG_CONSUMER_FETCH_MIN_BYTES",
        minimum=1,
    )
    consumer_options: dict[str, str] = declare_options(
        "the consumer with which stage one reads the source (Java, in Spark)"
    )
    security: Security
    mode: Literal["single", "failover"] = declare(
        "single",
        "`single`: one cluster, known by its identity. `failover`: any of several with the same"
        " records at the same offsets, known by these; copied from one at a time. What differs for"
        " the second of them is `source.2.…`, see [Fail over](how-to/fail-over.md).",
    )
    randomize_initial: bool = declare(
        False,
        "Begin with any of the candidates, not with the first. (These names are kaf-relay's.)",
    )
    healthcheck_interval_ms: int = declare(
        3000,
        "How often every candidate is asked for its last stable offsets.",
        minimum=100,
        maximum=3_600_000,
    )
    request_timeout_ms: int = declare(
        3000,
        "A candidate that does not answer for so long is unhealthy. kaf-relay: 100.",
        minimum=100,
        maximum=60_000,
    )
    offset_lag_threshold: int = declare(
        1000,
        "How many stable offsets, of all partitions together, a candidate may be behind another.",
    )
    max_failovers: int = declare(
        -1, "After so many changes of the candidate the service ends; -1: never.", minimum=-1
    )
    backoff_min_ms: int = declare(
        2000,
        "While no candidate can be copied from: the first wait before all are asked again; then"
        " twice as long, …",
        minimum=100,
        maximum=600_000,
    )
    backoff_max_ms: int = declare(
        10_000,
        "… up to this. Also the least time between two changes because of lag.",
        minimum=100,
        maximum=600_000,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The destination cluster, or what stands in its place."""

    bootstrap_servers: str = declare(
        "",
        "Brokers of the destination cluster.",
        "KAFKA_CLUSTERS_DESTINATION_BOOTSTRAP_SERVERS",
        required=True,
    )
    topic: str = declare(
        "", "The copy. Default: the source topic's name.", "KAFKA_CLUSTERS_DESTINATION_TOPIC"
    )
    postgresql: str = declare(
        "",
        "A database to copy to instead of a topic, as a connection string (`host=… dbname=… user=…"
        " password=…` or `postgresql://…`): a table for each topic, see [To"
        " PostgreSQL](how-to/postgresql.md).",
        kind="secret",
    )
    postgresql_schema: str = declare("public", "Where the tables are; it has to be there.")
    class_: str = declare(
        "",
        "A class of your own to copy to instead of a topic: `module:Class`, see [A destination of"
        " your own](how-to/own-destination.md).",
    )
    options: str = declare(
        "",
        "What that class is given: a JSON object; in a settings file the table"
        " `[destination.options]`.",
        kind="object",
    )
    zero_timestamp: Literal["refuse", "one"] = declare(
        "refuse",
        "A record with timestamp 0 (1970-01-01), which librdkafka cannot write: `refuse` stops, "
        "`one` writes 1 ms.",
    )
    producer_options: dict[str, str] = declare_options(
        "the producer with which stage two writes the destination (librdkafka)"
    )
    security: Security


@dataclass(frozen=True, slots=True, kw_only=True)
class Intermediate:
    """The topic between the stages."""

    topic: str = declare(
        "",
        "The topic between the stages, on the destination cluster. Default `<destination"
        " topic>-proxy`.",
        "KAFKA_CLUSTERS_DESTINATION_TOPIC_PROXY",
    )
    producer_options: dict[str, str] = declare_options(
        "the producer with which stage one writes the intermediate topic (Java, in Spark)"
    )
    consumer_options: dict[str, str] = declare_options(
        "the consumer with which stage two reads the intermediate topic (librdkafka)"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which records are copied."""

    sql: str = declare(
        "",
        "Only records for which this condition is true are copied: Spark's SQL over `key`, `value`,"
        " `headers`, `timestamp`, `partition`, `offset` and `topic`, applied in stage one, see"
        " [Filters](how-to/filter.md).",
    )
    function: str = declare(
        "",
        "Only records for which this Python function returns True are copied: `module:function`,"
        " called in stage two. Several, separated by commas: all of them have to return True.",
    )
    options: str = declare(
        "",
        'Keyword arguments of these functions: a JSON object like `{"module:function": {"name":'
        ' "value"}}`, in a settings file the tables `[filter.options."module:function"]`.',
        kind="object",
    )
    on_error: Literal["stop", "park"] = declare(
        "stop",
        "A record on which `filter.function` fails: `stop`, or `park` it on the topic `<destination"
        " topic>-parked`.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a record came from."""

    header: str = declare(
        "",
        "Every copied record gets a header of this name with the id of the cluster that it was"
        " copied from; one that came from the destination is not copied back, see [Copies that go"
        " round](how-to/topics.md#copies-that-go-round).",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets:
    """Consumer groups."""

    sync_groups: str = declare(
        "",
        "Consumer groups of the source whose committed offsets the service keeps translated at the"
        " destination, as a regular expression that the whole name has to match, see [Move"
        " consumers](how-to/move-consumers.md#keep-groups-translated). Default: none.",
    )
    sync_interval_s: int = declare(60, "How often it translates them.", minimum=1, maximum=86_400)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """The topics that reo creates."""

    sync: str = declare(
        "",
        "Configurations of the source topics that their copies have too,"
        " `retention.ms,cleanup.policy`, see [Keep topics"
        " alike](how-to/topics.md#keep-topics-alike). Default: those that are set on the source"
        " topic, when the copy is created.",
    )
    replication_factor: int = declare(
        -1,
        "Of topics that reo creates; -1 is the broker's default (KIP-464). kafka-reo: 3.",
        "STREAMS_REPLICATION_FACTOR",
        minimum=-1,
        maximum=32767,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """What both stages write with."""

    linger_ms: int = declare(
        0,
        "How long stage one's batches wait for more records; under load they are full without it."
        " kafka-reo: 10.",
        "KAFKA_CONFIG_PRODUCER_LINGER_MS",
        maximum=1000,
    )
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] = declare(
        "none",
        "Of what both stages write. kafka-reo: gzip, which is the slowest.",
        "KAFKA_CONFIG_PRODUCER_COMPRESSION_TYPE",
    )
    delivery_timeout_ms: int = declare(
        604_800_000,
        "How long stage one tries to deliver a record (7 days). Stage two tries for one"
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
    drain_s: int = declare(
        10, "How long a new run waits for stage two to catch up before it begins.", maximum=3600
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Deduplicator:
    """Stage two."""

    workers: int = declare(
        1,
        "Processes of stage two in this instance; they share the partitions. kafka-reo: 3.",
        "STREAMS_NUM_STREAM_THREADS",
        minimum=1,
        maximum=64,
    )
    group_protocol: Literal["classic", "consumer"] = declare(
        "classic",
        "`classic`, or `consumer` (KIP-848), with which a killed worker's partitions wait for "
        "the broker's session time-out.",
    )
    session_timeout_ms: int = declare(
        10_000,
        "After this silence another worker takes the partitions (classic protocol).",
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
        20_000, "Most records of one transaction.", minimum=1, maximum=90_000
    )
    compiled: bool = declare(
        True,
        "`no`: Python does the work of stage two's compiled path, more slowly, with the same"
        " results. `reo check` says which one is used.",
    )
    without_frontier: Literal["refuse", "append"] = declare(
        "refuse",
        "A destination with records but no frontier: `refuse` stops, `append` copies from "
        "`source.start` behind them.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The HTTP server."""

    address: str = declare(
        "",
        "The address that /metrics, /livez, /readyz and /status are served at. Default: all of this"
        " host's.",
    )
    port: int = declare(
        7081, "Port of /metrics, /livez, /readyz and /status; 0 takes a free one.", maximum=65_535
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The log."""

    format: Literal["text", "json"] = declare("text", "One event a line: `text` or `json`.")
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = declare(
        "INFO", "Least level that is written."
    )


@dataclass(kw_only=True, eq=False, repr=False)
class Schema:
    """All sections, and the settings without a section, in the order of the reference."""

    application: str = declare(
        "",
        "Name of this copy: consumer group and prefix of the transactional ids. Default"
        " `reo-<destination topic>`.",
        "APPLICATION_NAME",
    )
    instance: str = declare(
        "",
        "Name of this instance: after a restart it takes its predecessor's place at once. Default:"
        " the host name.",
    )
    client_id: str = declare(
        "",
        "What the names of all clients begin with in the brokers' logs and quotas. Default: the"
        " application.",
    )
    source: Source
    destination: Destination
    intermediate: Intermediate
    allow_unsafe_options: bool = declare(
        False,
        "Pass raw options through that an exact copy does not survive. Every process then says so"
        " in its log.",
    )
    topics_: str = declare(
        "",
        "Several topics: `orders,invoices=copy,logs=all:3,^metrics-.*`, see [Many"
        " topics](how-to/topics.md); in a settings file the table `[topics]`, on the command line"
        " `--topic`. Instead of the three settings that name topics; `application` has no default"
        " then.",
    )
    filter: Filter
    provenance: Provenance
    offsets: Offsets
    topics: Topics
    producer: Producer
    replicator: Replicator
    deduplicator: Deduplicator
    metrics: Metrics
    log: Log
    connect_timeout_s: int = declare(
        30,
        "How long a start waits for a cluster before it says that it cannot be reached.",
        minimum=1,
        maximum=3600,
    )
    stop_at_end: bool = declare(
        False, "Copy what is there at the start, then end with exit code 0."
    )
