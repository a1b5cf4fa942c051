"""Every setting: name, type, default, range, other names, meaning. docs/reference.md and the Helm
chart's schema are made from it (`SETTINGS`). TLS and SASL are in `common.settings.security`.

A setting has one dotted name: in the code `settings.section.key`, in a settings file `[section]
key`, in the environment `REO_SECTION_KEY` and, where kafka-reo has the same setting, also
kafka-reo's name. Two names have an underscore at their end in the code alone: `class` is a keyword
of Python, and `topics` is also a section. Defaults are kafka-reo's unless there is a reason against
it; the meaning then says so.

Each of several source candidates can have its own TLS, SASL and consumer options:
`source.2.sasl_username` is `source.sasl_username` for the second cluster in
`source.bootstrap_servers`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import orjson

from common.settings.declaration import (
    Options,
    Setting,
    declare,
    declare_options,
    list_settings,
)
from common.settings.security import Security

CANDIDATES_MAX = 9
"""The number of candidates that can have their own settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The source cluster, or with `source.mode=failover` several, and how one of them is chosen."""

    bootstrap_servers: str = declare("", "KAFKA_CLUSTERS_SOURCE_BOOTSTRAP_SERVERS", required=True)
    """Brokers of the source cluster, `host:port,…`; with `source.mode=failover` of several
    identical clusters, separated by `;`."""
    topic: str = declare("", "KAFKA_CLUSTERS_SOURCE_TOPIC")
    """The topic to copy. For several: `topics`."""
    start: str = declare("earliest", "KAFKA_CONFIG_CONSUMER_AUTO_RESET", kind="start")
    """Where a copy without a frontier begins: `earliest`, `latest`, a timestamp (ms since 1970 UTC,
    12 or 13 digits, or ISO 8601 like `2026-01-31T08:00:00Z`), or an offset for each partition
    (`0=120,1=77`; those not named begin at `earliest`). With `latest`, what appears later is copied
    whole: a topic, after the service has its first frontiers; a partition, after its topic has."""
    fetch_min_bytes: int = declare(1, "KAFKA_CONFIG_CONSUMER_FETCH_MIN_BYTES", minimum=1)
    """Minimum bytes of a fetch response from the source (fetch.min.bytes); more costs latency."""
    consumer_options: Options = declare_options()
    """Raw options of the consumer with which stage one reads the source (Java, in Spark)."""
    security: Security
    mode: Literal["single", "failover"] = declare("single")
    """`single`: one cluster, known by its identity. `failover`: any of several with the same
    records at the same offsets, known by these; copied from one at a time. What differs for the
    second of them is `source.2.…`, see [Fail over](how-to/fail-over.md)."""
    randomize_initial: bool = declare(False)
    """Begin with any of the candidates, not with the first."""
    healthcheck_interval_ms: int = declare(3000, minimum=100, maximum=3_600_000)
    """How often every candidate is asked for its last stable offsets."""
    request_timeout_ms: int = declare(3000, minimum=100, maximum=60_000)
    """A candidate that does not answer for so long is unhealthy."""
    offset_lag_threshold: int = declare(1000)
    """By how many offsets a candidate may be behind another: the sum of the last stable offsets of
    all partitions is compared."""
    max_failovers: int = declare(-1, minimum=-1)
    """So many changes of the candidate are made; the next one that is needed ends the service. -1:
    without a limit."""
    backoff_min_ms: int = declare(2000, minimum=100, maximum=600_000)
    """While no candidate can be copied from: the first wait before all are asked again; then twice
    as long, …"""
    backoff_max_ms: int = declare(10_000, minimum=100, maximum=600_000)
    """… up to this. Also the minimum time between two changes because of lag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The destination cluster, or what stands in its place."""

    bootstrap_servers: str = declare(
        "", "KAFKA_CLUSTERS_DESTINATION_BOOTSTRAP_SERVERS", required=True
    )
    """Brokers of the destination cluster."""
    topic: str = declare("", "KAFKA_CLUSTERS_DESTINATION_TOPIC")
    """The copy. Default: the source topic's name."""
    class_: str = declare("")
    """A class to copy to instead of a topic: `module:Class`. [To PostgreSQL](how-to/postgresql.md),
    or to [a destination of your own](how-to/own-destination.md)."""
    connection: str = declare("", kind="secret")
    """What that class connects with: a connection string, an address with a password, a token."""
    options: str = declare("", kind="object")
    """What else that class is given: a JSON object; in a settings file the table
    `[destination.options]`."""
    guarantee: Literal["exactly-once", "at-least-once"] = declare("exactly-once")
    """What that class stores: records and positions together, or records alone, which can then
    arrive twice, see [Without positions](how-to/own-destination.md#without-positions)."""
    zero_timestamp: Literal["refuse", "one"] = declare("refuse")
    """A record with timestamp 0 (1970-01-01), which librdkafka cannot write: `refuse` stops, `one`
    writes 1 ms."""
    producer_options: Options = declare_options()
    """Raw options of the producer with which stage two writes the destination (librdkafka)."""
    security: Security


@dataclass(frozen=True, slots=True, kw_only=True)
class Intermediate:
    """The topic between the stages."""

    topic: str = declare("", "KAFKA_CLUSTERS_DESTINATION_TOPIC_PROXY")
    """The topic between the stages, on the destination cluster. Default `<destination
    topic>-proxy`."""
    replication_factor: int = declare(2, minimum=-1, maximum=32767)
    """Of intermediate topics that reo creates, at most the number of brokers; -1 is the brokers'
    default. What is lost there is read again from the source: with 2 the copy goes on while a
    broker is down, more only cost."""
    producer_options: Options = declare_options()
    """Raw options of the producer with which stage one writes the intermediate topic (Java, in
    Spark)."""
    consumer_options: Options = declare_options()
    """Raw options of the consumer with which stage two reads the intermediate topic (librdkafka).
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which records are copied."""

    sql: str = declare("")
    """Only records for which this condition is true are copied: Spark's SQL over `key`, `value`,
    `headers`, `timestamp`, `partition`, `offset` and `topic`, applied in stage one, see
    [Filters](how-to/filter.md)."""
    function: str = declare("")
    """Only records for which this Python function returns True are copied: `module:function`,
    called in stage two. Several, separated by commas: all of them have to return True."""
    options: str = declare("", kind="object")
    """Keyword arguments of these functions: a JSON object like `{"module:function": {"name":
    "value"}}`, in a settings file the tables `[filter.options."module:function"]`."""
    on_error: Literal["stop", "park"] = declare("stop")
    """A record on which `filter.function` fails: `stop`, or `park` it on the topic `<destination
    topic>-parked`."""

    @property
    def functions(self) -> list[str]:
        """The functions in the order in which they are called."""
        return [name.strip() for name in self.function.split(",")] if self.function else []

    @property
    def keywords(self) -> dict[str, Any]:
        """The keyword arguments of each function, as given."""
        return dict(orjson.loads(self.options)) if self.options else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a record came from."""

    header: str = declare("")
    """Every copied record gets a header of this name with the id of the cluster that it was copied
    from; one that came from the destination is not copied back, see [Replication
    cycles](how-to/topics.md#replication-cycles)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets:
    """Consumer groups."""

    sync_groups: str = declare("")
    """Consumer groups of the source whose committed offsets the service keeps translated at the
    destination, as a regular expression that the whole name has to match, see [Move
    consumers](how-to/move-consumers.md#keep-groups-translated). Default: none."""
    sync_interval_s: int = declare(60, minimum=1, maximum=86_400)
    """How often it translates them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """The topics that reo creates."""

    sync: str = declare("")
    """Configurations of the source topics that their copies have too,
    `retention.ms,cleanup.policy`, see [Keep topics alike](how-to/topics.md#keep-topics-alike).
    Default: those that are set on the source topic, when the copy is created."""
    sync_interval_s: int = declare(0, maximum=86_400)
    """How often the service compares these, and changes what differs; 0: at each start alone."""
    replication_factor: int = declare(-1, "STREAMS_REPLICATION_FACTOR", minimum=-1, maximum=32767)
    """Of topics that reo creates; -1 is the broker's default (KIP-464)."""

    @property
    def synced_configs(self) -> list[str]:
        """The topic configurations that are kept in sync."""
        return [name for name in map(str.strip, self.sync.split(",")) if name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schemas:
    """Schema registries, which `reo check` compares."""

    source_url: str = declare("", kind="secret")
    """The registry that the producers of the source use, `https://user:password@host:port/path`; it
    has Confluent's API. `reo check` asks both what the ids in the records mean, see
    [Schemas](how-to/schemas.md)."""
    destination_url: str = declare("", kind="secret")
    """The registry that consumers of the copy use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The HTTP server."""

    address: str = declare("")
    """The address that /metrics, /livez, /readyz and /status are served at. Default: all of this
    host's."""
    port: int = declare(7081, maximum=65_535)
    """Port of /metrics, /livez, /readyz and /status; 0 takes a free one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The log."""

    format: Literal["text", "json"] = declare("text")
    """One event a line: `text` or `json`."""
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = declare("INFO")
    """Minimum level that is written."""
    progress_interval_s: int = declare(60, minimum=0, maximum=86_400)
    """How often the service logs how many records it has copied and what waits; 0: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """What the stages write with. A setting of stage one alone says so."""

    linger_ms: int = declare(0, "KAFKA_CONFIG_PRODUCER_LINGER_MS", maximum=1000)
    """How long stage one's producer waits for more envelopes before it sends some."""
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] = declare(
        "none", "KAFKA_CONFIG_PRODUCER_COMPRESSION_TYPE"
    )
    """Of what both stages write; gzip is the slowest."""
    delivery_timeout_ms: int = declare(
        604_800_000, "KAFKA_CONFIG_PRODUCER_DELIVERY_TIMEOUT_MS", minimum=120_000
    )
    """How long stage one tries to deliver an envelope (7 days). Stage two tries for one
    transaction, then aborts and does it again, without end."""
    acks: Literal["all", "-1"] = declare("all", "KAFKA_CONFIG_PRODUCER_ACKS")
    """Only `all` is accepted: with less, an acknowledged record can be lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicator:
    """Stage one."""

    memory_mb: int | None = declare(None, minimum=512, maximum=1_048_576)
    """Heap of each JVM of stage one; Spark does not start with less than 512. Default: what its
    tasks need, see [Size](how-to/size.md)."""
    master: str = declare("")
    """Where stage one's tasks run: `spark://host:port` of a standalone cluster or
    `k8s://https://host:port` of Kubernetes, with a core for each partition of the source, see
    [Stage one on a cluster](how-to/spark.md). Default: `local[n]`, in its own JVM."""
    spark_options: Options = declare_options()
    """Raw options of stage one's Spark; their names keep upper and lower case."""
    batch_s: int = declare(300, minimum=5, maximum=86_400)
    """Length of a Real-Time-Mode batch. Each boundary stalls the flow for 0.3-0.5 s."""
    envelope_bytes: int = declare(122_880, minimum=1024, maximum=8_388_608)
    """At this size stage one sends an envelope. Larger ones cost less processor time for each
    record, until the intermediate topic's `max.message.bytes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deduplicator:
    """Stage two."""

    workers: int = declare(1, "STREAMS_NUM_STREAM_THREADS", minimum=1, maximum=64)
    """Processes of stage two in this instance; they share the partitions."""
    session_timeout_ms: int = declare(10_000, minimum=1000)
    """Without a heartbeat for this long, a worker is no member of the group any more: others get
    its partitions."""
    transaction_timeout_ms: int = declare(20_000, minimum=5000, maximum=900_000)
    """A dead worker's open transaction blocks read_committed readers of the destination for this
    long, plus up to 10 s."""
    transaction_records: int = declare(20_000, minimum=1, maximum=90_000)
    """Maximum number of records of one transaction."""
    compiled: bool = declare(True)
    """`false`: Python does the work of stage two's compiled path, more slowly, with the same
    results. `reo check` says which one is used."""
    without_frontier: Literal["refuse", "append"] = declare("refuse")
    """A destination with records but no frontier: `refuse` stops, `append` copies from
    `source.start` after them."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Schema:
    """All sections, and the settings without a section, in the order of the reference."""

    application: str = declare("", "APPLICATION_NAME")
    """Name of this copy: consumer group and prefix of the transactional ids. Default
    `reo-<destination topic>`."""
    instance: str = declare("")
    """Name of this instance: after a restart it takes its predecessor's place at once. Default: the
    host name."""
    client_id: str = declare("")
    """What the names of all clients begin with in the brokers' logs and quotas. Default: the
    application."""
    source: Source
    destination: Destination
    intermediate: Intermediate
    allow_unsafe_options: bool = declare(False)
    """Pass raw options through that an exact copy does not survive. Every process then says so in
    its log."""
    topics_: str = declare("")
    """Several topics: `orders,invoices=copy,logs=all:3,^metrics-.*`, see [Many
    topics](how-to/topics.md), or some partitions of one: `orders[0-499]`, see [Divide a
    topic](how-to/topics.md#divide-a-topic); in a settings file the table `[topics]`, on the command
    line `--topic`. Instead of the three settings that name topics; `application` has no default
    then."""
    filter: Filter
    provenance: Provenance
    offsets: Offsets
    topics: Topics
    schemas: Schemas
    producer: Producer
    replicator: Replicator
    deduplicator: Deduplicator
    metrics: Metrics
    log: Log
    connect_timeout_s: int = declare(30, minimum=1, maximum=3600)
    """How long a start waits for a cluster before it says that it cannot be reached."""
    on_stop: Literal["service", "route"] = declare("service")
    """What an error ends that is of one topic alone, while the service runs: the `service`, or this
    `route`, which `reo resume` lets go on, see [One topic alone](how-to/stops.md#one-topic-alone).
    """
    stop_at_end: bool = declare(False)
    """Copy what is there at the start, then end with exit code 0."""


def build_candidate_setting_name(number: int, common_name: str) -> str:
    """The name of a `source` setting for one candidate."""
    return f"source.{number}.{common_name.removeprefix('source.')}"


def _list_candidate_settings(number: int) -> Iterator[Setting]:
    """What a source candidate can override. Empty: the value of `source.…`."""
    meaning = "Raw options of that consumer, for this candidate alone."
    options = Setting("consumer_options", "options", "", meaning)
    for setting in (*list_settings(Security, "source."), options):
        yield replace(
            setting,
            name=build_candidate_setting_name(number, setting.name),
            default="",
            choices=setting.choices and ("", *filter(None, setting.choices)),
            candidate=number,
        )


def _list_all() -> Iterator[Setting]:
    """The settings of candidates stand behind those of the source."""
    settings = list(list_settings(Schema))
    last = max(number for number, each in enumerate(settings) if each.name.startswith("source."))
    yield from settings[: last + 1]
    for number in range(1, CANDIDATES_MAX + 1):
        yield from _list_candidate_settings(number)
    yield from settings[last + 1 :]


SETTINGS: tuple[Setting, ...] = tuple(_list_all())
BY_NAME = {setting.name: setting for setting in SETTINGS}
BY_ENVIRONMENT = {name: setting for setting in SETTINGS for name in setting.environment}
SECRETS = {setting.file_variable: setting for setting in SETTINGS if setting.kind == "secret"}
OPTION_TABLES = tuple(setting.name for setting in SETTINGS if setting.kind == "options")
"""Every table of raw options."""
