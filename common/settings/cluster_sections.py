"""The settings of the source, of the destination, and of the topic between the stages: which
cluster, which topic, and what the clients there are given.
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
        " UTC, 12 or 13 digits, or ISO 8601 like `2026-01-31T08:00:00Z`), or an offset for each"
        " partition (`0=120,1=77`; those not named begin at `earliest`). With `latest`, what"
        " appears later is copied whole: a topic, after the service has its first frontiers; a"
        " partition, after its topic has.",
        "KAFKA_CONFIG_CONSUMER_AUTO_RESET",
        kind="start",
    )
    fetch_min_bytes: int = declare(
        1,
        "Minimum bytes of a fetch response from the source (fetch.min.bytes); more costs latency.",
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
        "Begin with any of the candidates, not with the first.",
    )
    healthcheck_interval_ms: int = declare(
        3000,
        "How often every candidate is asked for its last stable offsets.",
        minimum=100,
        maximum=3_600_000,
    )
    request_timeout_ms: int = declare(
        3000,
        "A candidate that does not answer for so long is unhealthy.",
        minimum=100,
        maximum=60_000,
    )
    offset_lag_threshold: int = declare(
        1000,
        "By how many offsets a candidate may be behind another: the sum of the last stable offsets"
        " of all partitions is compared.",
    )
    max_failovers: int = declare(
        -1,
        "So many changes of the candidate are made; the next one that is needed ends the service."
        " -1: without a limit.",
        minimum=-1,
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
        "… up to this. Also the minimum time between two changes because of lag.",
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
    replication_factor: int = declare(
        2,
        "Of intermediate topics that reo creates, at most the number of brokers; -1 is the brokers'"
        " default. What is lost there is read again from the source: with 2 the copy goes on while"
        " a broker is down, more only cost.",
        minimum=-1,
        maximum=32767,
    )
    producer_options: dict[str, str] = declare_options(
        "the producer with which stage one writes the intermediate topic (Java, in Spark)"
    )
    consumer_options: dict[str, str] = declare_options(
        "the consumer with which stage two reads the intermediate topic (librdkafka)"
    )
