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
    (`0=120,1=77`; others begin at `earliest`). With `latest`, a topic that appears when the service
    has frontiers, and a partition when its topic has, is copied whole."""
    fetch_min_bytes: int = declare(1, "KAFKA_CONFIG_CONSUMER_FETCH_MIN_BYTES", minimum=1)
    """Kafka's fetch.min.bytes; more costs latency."""
    consumer_options: Options = declare_options()
    """Raw options of stage one's consumer (Java, in Spark)."""
    security: Security
    mode: Literal["single", "failover"] = declare("single")
    """`single`: one cluster, known by its id. `failover`: [one of several](how-to/fail-over.md)
    with the same records at the same offsets, known by these."""
    randomize_initial: bool = declare(False)
    """Begin with any of the candidates, not with the first."""
    healthcheck_interval_ms: int = declare(3000, minimum=100, maximum=3_600_000)
    """How often every candidate is asked for its last stable offsets."""
    request_timeout_ms: int = declare(3000, minimum=100, maximum=60_000)
    """A candidate that does not answer for so long is unhealthy."""
    offset_lag_threshold: int = declare(1000)
    """By how many offsets a candidate may be behind another, by the sum of all partitions' last
    stable offsets."""
    max_failovers: int = declare(-1, minimum=-1)
    """How many changes of the candidate are made; the next one ends the service. -1: no limit."""
    backoff_min_ms: int = declare(2000, minimum=100, maximum=600_000)
    """The first wait while no candidate can be copied from; then twice as long, …"""
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
    """A class in the place of the topic, `module:Class`: [PostgreSQL](how-to/postgresql.md) or
    [your own](how-to/own-destination.md)."""
    connection: str = declare("", kind="secret")
    """What that class connects with, such as a connection string or a token."""
    options: str = declare("", kind="object")
    """What else that class is given: a JSON object; in a settings file the table
    `[destination.options]`."""
    guarantee: Literal["exactly-once", "at-least-once"] = declare("exactly-once")
    """Whether that class stores positions with the records. [Without
    them](how-to/own-destination.md#without-positions) records can arrive twice."""
    zero_timestamp: Literal["refuse", "one"] = declare("refuse")
    """A record with timestamp 0 (1970-01-01), which librdkafka cannot write: `refuse` stops, `one`
    writes 1 ms."""
    producer_options: Options = declare_options()
    """Raw options of stage two's producer (librdkafka)."""
    security: Security


@dataclass(frozen=True, slots=True, kw_only=True)
class Intermediate:
    """The topic between the stages."""

    topic: str = declare("", "KAFKA_CLUSTERS_DESTINATION_TOPIC_PROXY")
    """The topic between the stages, on the destination cluster. Default `<destination
    topic>-proxy`."""
    replication_factor: int = declare(2, minimum=-1, maximum=32767)
    """Of intermediate topics that reo creates, at most the number of brokers; -1: the brokers'
    default. With 2 the copy goes on while a broker is down; more only cost."""
    producer_options: Options = declare_options()
    """Raw options of stage one's producer (Java, in Spark)."""
    consumer_options: Options = declare_options()
    """Raw options of stage two's consumer (librdkafka)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which records are copied."""

    sql: str = declare("")
    """Stage one copies only records for which this condition of Spark's SQL is true, see
    [Filters](how-to/filter.md)."""
    function: str = declare("")
    """Stage two copies only records for which this Python function, `module:function`, returns
    True; of several, separated by commas, all have to."""
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
    """Header that copied records get, with the id of the cluster that they were copied from: it
    ends [replication cycles](how-to/topics.md#replication-cycles)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets:
    """Consumer groups."""

    sync_groups: str = declare("")
    """Consumer groups whose offsets the service [keeps
    translated](how-to/move-consumers.md#keep-groups-translated) at the destination: a regular
    expression that the whole name has to match. Default: none."""
    sync_interval_s: int = declare(60, minimum=1, maximum=86_400)
    """How often it translates them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """The topics that reo creates."""

    sync: str = declare("")
    """Topic configurations that are [kept alike](how-to/topics.md#keep-topics-alike), such as
    `retention.ms,cleanup.policy`. Default: none; a topic keeps what it was created with."""
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
    """Schema registry of the source's producers, `https://user:password@host:port/path`; `reo
    check` [compares both](how-to/schemas.md#compare-both-registries)."""
    destination_url: str = declare("", kind="secret")
    """Schema registry of the copy's consumers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The HTTP server."""

    address: str = declare("")
    """Address that `metrics.port` listens on. Default: all of this host's."""
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
    """Heap of each JVM of stage one. Default: [what its tasks need](how-to/size.md#partitions)."""
    master: str = declare("")
    """Where stage one's tasks run: [on a cluster](how-to/spark.md), `spark://host:port` or
    `k8s://https://host:port`. Default: `local[n]`, in its own JVM."""
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
    """After this long without a heartbeat, others get a worker's partitions."""
    transaction_timeout_ms: int = declare(20_000, minimum=5000, maximum=900_000)
    """A dead worker's open transaction blocks read_committed readers of the destination for this
    long, plus up to 10 s."""
    transaction_records: int = declare(20_000, minimum=1, maximum=90_000)
    """Maximum number of records of one transaction."""
    compiled: bool = declare(True)
    """`false`: Python does the work of stage two's compiled path, more slowly, with the same
    results."""
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
    """[Prefix of all client ids](how-to/tune.md#let-the-brokers-throttle-it). Default: the
    application."""
    source: Source
    destination: Destination
    intermediate: Intermediate
    allow_unsafe_options: bool = declare(False)
    """Pass raw options through that an exact copy does not survive. Every process then says so in
    its log."""
    topics_: str = declare("")
    """[Rules for several topics](how-to/topics.md#rules),
    `orders,invoices=copy,logs=all:3,^metrics-.*`, or [some
    partitions](how-to/topics.md#divide-a-topic) of one, `orders[0-499]`; in a settings file the
    table `[topics]`, on the command line `--topic`. They replace the three settings that name
    topics; `application` has no default then."""
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
    """What [an error of one topic alone](how-to/stops.md#one-topic-alone) ends while the service
    runs: the `service`, or this `route`."""
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
