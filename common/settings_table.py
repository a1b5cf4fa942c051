"""Every setting, in one table: name, kind, default, other names, meaning. docs/reference.md has it.

A setting has one dotted name. In a settings file that is `[section] key`; in the environment it is `REO_SECTION_KEY`, and,
where kafka-reo has the same setting, also kafka-reo's name. Defaults are kafka-reo's unless there is a reason against it; the
meaning then says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from common.candidate_settings import CANDIDATES_MAX, candidate_setting_name
from common.client_options import ALLOW_UNSAFE
from common.security import MECHANISMS, PROTOCOLS

Kind = Literal["text", "integer", "flag", "start", "secret", "options", "object"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting; `choices` or the range `minimum`..`maximum` bound it, `required` ones have no default."""

    name: str
    kind: Kind
    default: str | int | bool | None
    meaning: str
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    minimum: int = 0
    maximum: int = 2**31 - 1
    required: bool = False
    candidate: int = 0
    """The number of the source candidate that it belongs to, from 1; 0 when it belongs to all candidates, or to none."""

    @property
    def environment(self) -> tuple[str, ...]:
        """The environment variables that set it; the first is reo's own. A raw option has one of its own (`client_options.get_variable`)."""
        if self.kind == "options":
            return ()
        return ("REO_" + self.name.upper().replace(".", "_"), *self.aliases)

    @property
    def file_variable(self) -> str:
        """The environment variable that names the file with a secret."""
        return self.environment[0] + "_FILE"


def _access(side: str) -> tuple[Setting, ...]:
    """TLS and SASL settings of a cluster (`common.security`); the same for both stages."""
    return (
        Setting(f"{side}.security_protocol", "text", "PLAINTEXT", f"Security protocol of the {side} cluster's listeners.", choices=PROTOCOLS),
        Setting(f"{side}.sasl_mechanism", "text", "", "With `SASL_…`.", choices=("", *MECHANISMS)),
        Setting(f"{side}.sasl_username", "text", "", "With `SASL_…`; the client id with OAUTHBEARER."),
        Setting(f"{side}.sasl_password", "secret", "", "With `SASL_…`; the client secret with OAUTHBEARER."),
        Setting(f"{side}.sasl_oauth_token_url", "text", "", "OAuth token endpoint URL (client-credentials grant)."),
        Setting(f"{side}.sasl_oauth_scope", "text", "", "The scope that is asked for."),
        Setting(f"{side}.ssl_ca_file", "text", "", "PEM file of the authorities that are trusted. Default: the system's (stage two) and Java's (stage one)."),
        Setting(f"{side}.ssl_certificate_file", "text", "", "PEM file of our own certificate and its chain, where the brokers ask for one."),
        Setting(f"{side}.ssl_key_file", "text", "", "PEM file of its private key, as PKCS #8, not encrypted."),
    )


def _options(name: str, client: str, candidate: int = 0) -> Setting:
    return Setting(name, "options", "", f"Raw options of {client}.", candidate=candidate)


def _candidate_settings(number: int) -> tuple[Setting, ...]:
    """The settings that one of several source candidates can override. Empty: the value of `source.…`."""
    common_settings = _access("source")
    return (
        *(replace(setting, name=candidate_setting_name(number, setting.name), default="", choices=setting.choices and ("", *filter(None, setting.choices)),
                  candidate=number) for setting in common_settings),
        _options(candidate_setting_name(number, "source.consumer_options"), "that consumer, for this candidate alone", number),
    )


_FAILOVER = (
    Setting("source.mode", "text", "single", "`single`: one cluster, known by its identity. `failover`: any of several with the same records at the same "
            "offsets, known by these; copied from one at a time. "
            "What differs for the second of them is `source.2.…`, see [Fail over](how-to/fail-over.md).", choices=("single", "failover")),
    Setting("source.randomize_initial", "flag", False, "Begin with any of the candidates, not with the first. (These names are kaf-relay's.)"),
    Setting("source.healthcheck_interval_ms", "integer", 3000, "How often every candidate is asked for its last stable offsets.",
            minimum=100, maximum=3_600_000),
    Setting("source.request_timeout_ms", "integer", 3000, "A candidate that does not answer for so long is unhealthy. kaf-relay: 100.",
            minimum=100, maximum=60_000),
    Setting("source.offset_lag_threshold", "integer", 1000, "How many stable offsets, of all partitions together, a candidate may be behind another."),
    Setting("source.max_failovers", "integer", -1, "After so many changes of the candidate the service ends; -1: never.", minimum=-1),
    Setting("source.backoff_min_ms", "integer", 2000, "While no candidate can be copied from: the first wait before all are asked again; then twice as long, …",
            minimum=100, maximum=600_000),
    Setting("source.backoff_max_ms", "integer", 10_000, "… up to this. Also the least time between two changes because of lag.", minimum=100, maximum=600_000),
)

SETTINGS: tuple[Setting, ...] = (
    Setting("application", "text", "", "Name of this copy: consumer group and prefix of the transactional ids. Default `reo-<destination topic>`.",
            ("APPLICATION_NAME",)),
    Setting("instance", "text", "", "Name of this instance: after a restart it takes its predecessor's place at once. Default: the host name."),
    Setting("client_id", "text", "", "What the names of all clients begin with in the brokers' logs and quotas. Default: the application."),
    Setting("source.bootstrap_servers", "text", None, "Brokers of the source cluster, `host:port,…`; with `source.mode=failover` of "
            "several identical clusters, separated by `;`.",
            ("KAFKA_CLUSTERS_SOURCE_BOOTSTRAP_SERVERS",), required=True),
    Setting("source.topic", "text", "", "The topic to copy. For several: `topics`.", ("KAFKA_CLUSTERS_SOURCE_TOPIC",)),
    Setting("source.start", "start", "earliest",
            "Where a copy without a frontier begins: `earliest`, `latest`, a timestamp (ms since 1970 UTC, or ISO 8601 like `2026-01-31T08:00:00Z`), or an "
            "offset for each partition (`0=120,1=77`; those not named begin at `earliest`). With `latest`, what appears after the service has its first "
            "frontiers is copied whole.", ("KAFKA_CONFIG_CONSUMER_AUTO_RESET",)),
    Setting("source.fetch_min_bytes", "integer", 1, "Least bytes of an answer to a fetch from the source. kafka-reo: 1048576, which costs latency.",
            ("KAFKA_CONFIG_CONSUMER_FETCH_MIN_BYTES",), minimum=1),
    _options("source.consumer_options", "the consumer with which stage one reads the source (Java, in Spark)"),
    *_access("source"),
    *_FAILOVER,
    *(setting for number in range(1, CANDIDATES_MAX + 1) for setting in _candidate_settings(number)),
    Setting("destination.bootstrap_servers", "text", None, "Brokers of the destination cluster.",
            ("KAFKA_CLUSTERS_DESTINATION_BOOTSTRAP_SERVERS",), required=True),
    Setting("destination.topic", "text", "", "The copy. Default: the source topic's name.", ("KAFKA_CLUSTERS_DESTINATION_TOPIC",)),
    Setting("destination.postgresql", "secret", "", "A database to copy to instead of a topic, as a connection string (`host=… dbname=… user=… password=…` or "
            "`postgresql://…`): a table for each topic, see [To PostgreSQL](how-to/postgresql.md)."),
    Setting("destination.postgresql_schema", "text", "public", "Where the tables are; it has to be there."),
    Setting("destination.class", "text", "", "A class of your own to copy to instead of a topic: `module:Class`, see "
            "[A destination of your own](how-to/own-destination.md)."),
    Setting("destination.options", "object", "", "What that class is given: a JSON object; in a settings file the table `[destination.options]`."),
    Setting("destination.zero_timestamp", "text", "refuse",
            "A record with timestamp 0 (1970-01-01), which librdkafka cannot write: `refuse` stops, `one` writes 1 ms.", choices=("refuse", "one")),
    _options("destination.producer_options", "the producer with which stage two writes the destination (librdkafka)"),
    *_access("destination"),
    Setting("intermediate.topic", "text", "", "The topic between the stages, on the destination cluster. Default `<destination topic>-proxy`.",
            ("KAFKA_CLUSTERS_DESTINATION_TOPIC_PROXY",)),
    _options("intermediate.producer_options", "the producer with which stage one writes the intermediate topic (Java, in Spark)"),
    _options("intermediate.consumer_options", "the consumer with which stage two reads the intermediate topic (librdkafka)"),
    Setting(ALLOW_UNSAFE, "flag", False, "Pass raw options through that an exact copy does not survive. Every process then says so in its log."),
    Setting("topics", "text", "", "Several topics: `orders,invoices=copy,logs=all:3,^metrics-.*`, see [Many topics](how-to/topics.md); in a settings file the "
            "table `[topics]`, on the command line `--topic`. Instead of the three settings that name topics; `application` has no default then."),
    Setting("filter.sql", "text", "", "Only records for which this condition is true are copied: Spark's SQL over `key`, `value`, `headers`, `timestamp`, "
            "`partition`, `offset` and `topic`, applied in stage one, see [Filters](how-to/filter.md)."),
    Setting("filter.function", "text", "", "Only records for which this Python function returns True are copied: `module:function`, called in stage two. "
            "Several, separated by commas: all of them have to return True."),
    Setting("filter.options", "object", "", 'Keyword arguments of these functions: a JSON object like `{"module:function": {"name": "value"}}`, in a '
            'settings file the tables `[filter.options."module:function"]`.'),
    Setting("filter.on_error", "text", "stop", "A record on which `filter.function` fails: `stop`, or `park` it on the topic `<destination topic>-parked`.",
            choices=("stop", "park")),
    Setting("provenance.header", "text", "", "Every copied record gets a header of this name with the id of the cluster that it was copied from; "
            "one that came from the destination is not copied back, see [Copies that go round](how-to/topics.md#copies-that-go-round)."),
    Setting("offsets.sync_groups", "text", "", "Consumer groups of the source whose committed offsets the service keeps translated at the destination, as a "
            "regular expression that the whole name has to match, see [Move consumers](how-to/move-consumers.md#keep-groups-translated). Default: none."),
    Setting("offsets.sync_interval_s", "integer", 60, "How often it translates them.", minimum=1, maximum=86_400),
    Setting("topics.sync", "text", "", "Configurations of the source topics that their copies have too, `retention.ms,cleanup.policy`, see "
            "[Keep topics alike](how-to/topics.md#keep-topics-alike). Default: those that are set on the source topic, when the copy is created."),
    Setting("topics.replication_factor", "integer", -1, "Of topics that reo creates; -1 is the broker's default (KIP-464). kafka-reo: 3.",
            ("STREAMS_REPLICATION_FACTOR",), minimum=-1, maximum=32767),
    Setting("producer.linger_ms", "integer", 0, "How long stage one's batches wait for more records; under load they are full without it. kafka-reo: 10.",
            ("KAFKA_CONFIG_PRODUCER_LINGER_MS",), maximum=1000),
    Setting("producer.compression_type", "text", "none", "Of what both stages write. kafka-reo: gzip, which is the slowest.",
            ("KAFKA_CONFIG_PRODUCER_COMPRESSION_TYPE",), choices=("none", "gzip", "snappy", "lz4", "zstd")),
    Setting("producer.delivery_timeout_ms", "integer", 604_800_000,
            "How long stage one tries to deliver a record (7 days). Stage two tries for one transaction, then aborts and does it again, without end.",
            ("KAFKA_CONFIG_PRODUCER_DELIVERY_TIMEOUT_MS",), minimum=120_000),
    Setting("producer.acks", "text", "all", "Only `all` is accepted: with less, an acknowledged record can be lost.",
            ("KAFKA_CONFIG_PRODUCER_ACKS",), choices=("all", "-1")),
    Setting("replicator.memory_mb", "integer", "", "Heap of stage one's JVM; Spark does not start with less than 512. Default: 512, and 8 more for "
            "each partition beyond 16 that the source has at the start.", minimum=512, maximum=1_048_576),
    Setting("replicator.master", "text", "", "Where stage one's tasks run: `spark://host:port` of a standalone cluster or `k8s://https://host:port` of "
            "Kubernetes, with a core for each partition of the source, see [Stage one on a cluster](how-to/spark.md). Default: `local[n]`, in its own JVM."),
    _options("replicator.spark_options", "stage one's Spark; their names keep upper and lower case"),
    Setting("replicator.batch_s", "integer", 300, "Length of a Real-Time-Mode batch. Each boundary stalls the flow for 0.3-0.5 s.", minimum=5, maximum=86_400),
    Setting("replicator.drain_s", "integer", 10, "How long a new run waits for stage two to catch up before it begins.", maximum=3600),
    Setting("deduplicator.workers", "integer", 1, "Processes of stage two in this instance; they share the partitions. kafka-reo: 3.",
            ("STREAMS_NUM_STREAM_THREADS",), minimum=1, maximum=64),
    Setting("deduplicator.group_protocol", "text", "classic",
            "`classic`, or `consumer` (KIP-848), with which a killed worker's partitions wait for the broker's session time-out.",
            choices=("classic", "consumer")),
    Setting("deduplicator.session_timeout_ms", "integer", 10_000, "After this silence another worker takes the partitions (classic protocol).", minimum=1000),
    Setting("deduplicator.transaction_timeout_ms", "integer", 20_000,
            "A dead worker's open transaction blocks read_committed readers of the destination for this long, plus up to 10 s.", minimum=5000, maximum=900_000),
    Setting("deduplicator.transaction_records", "integer", 20_000, "Most records of one transaction.", minimum=1, maximum=90_000),
    Setting("deduplicator.compiled", "flag", True,
            "`no`: Python does the work of stage two's compiled path, more slowly, with the same results. `reo check` says which one is used."),
    Setting("deduplicator.without_frontier", "text", "refuse",
            "A destination with records but no frontier: `refuse` stops, `append` copies from `source.start` behind them.", choices=("refuse", "append")),
    Setting("metrics.address", "text", "", "The address that /metrics, /livez, /readyz and /status are served at. Default: all of this host's."),
    Setting("metrics.port", "integer", 7081, "Port of /metrics, /livez, /readyz and /status; 0 takes a free one.", maximum=65_535),
    Setting("log.format", "text", "text", "One event a line: `text` or `json`.", choices=("text", "json")),
    Setting("log.level", "text", "INFO", "Least level that is written.", choices=("DEBUG", "INFO", "WARNING", "ERROR")),
    Setting("connect_timeout_s", "integer", 30, "How long a start waits for a cluster before it says that it cannot be reached.", minimum=1, maximum=3600),
    Setting("stop_at_end", "flag", False, "Copy what is there at the start, then end with exit code 0."),
)

BY_NAME = {setting.name: setting for setting in SETTINGS}
BY_ENVIRONMENT = {name: setting for setting in SETTINGS for name in setting.environment}
SECRETS = {setting.file_variable: setting for setting in SETTINGS if setting.kind == "secret"}
