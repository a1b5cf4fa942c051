"""Converts kaf-relay's TOML to settings of reo. Several files are merged in order, tables key by
key, lists as a whole, as koanf does; durations are Go's.

Each line that knows a key removes it from its table (`reo.importers.imported_settings`): it becomes
a setting, or a note says why not.

Its source: config.sample.toml, init.go and pkg/relay/config.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from common.settings.declaration import Setting
from common.settings.schema import BY_NAME, CANDIDATES_MAX
from reo.importers.imported_settings import ImportedSettings, Table, Tree

LEVELS = {"debug": "DEBUG", "info": "INFO", "warn": "WARNING", "error": "ERROR"}
OFFSETS = {"start": "earliest", "end": "latest"}
UNITS_MS = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4, "h": 3.6e6}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def import_settings(tree: Tree, with_secrets: bool = False, mode: str = "") -> ImportedSettings:
    """The settings for what kaf-relay does with this configuration and this `--mode`; without one:
    `failover` where there are several sources.
    """
    into = ImportedSettings()
    top = Table(into, "", tree)
    _convert_app(Table(into, "app", top.take("app")))
    into.topics = dict(_convert_topics(into, top.take("topics")))
    sources = top.take("sources") or []
    tables = [
        Table(into, f"sources[{number}]", source)
        for number, source in enumerate(sources if isinstance(sources, list) else [sources])
    ]
    failover = mode == "failover" or (not mode and len(tables) > 1)
    if failover:
        _convert_candidates(into, tables, with_secrets, is_guessed=not mode)
    for number, source in enumerate([] if failover else tables):
        if number == 0:
            _convert_source(source, "source", with_secrets)
            source.drop("max_failovers", "there is nothing to fail over to with --mode single")
            source.end("kaf-relay")
        else:
            into.note(source.path, "kaf-relay does not use it with --mode single")
    _convert_pool(Table(into, "source_pool", top.take("source_pool")), failover)
    _convert_target(Table(into, "target", top.take("target")), with_secrets)
    _convert_filters(into, top.take("filters"))
    top.end("kaf-relay")
    return into


def _convert_app(app: Table) -> None:
    app.into.values["log.format"] = "json"  # all that kaf-relay writes
    app.put("log_level", "log.level", lambda level: LEVELS[str(level).lower()])
    address = app.take("metrics_server_addr")
    if address is not None:
        host, colon, port = str(address).rpartition(":")
        if colon and port.isdecimal():
            app.into.values |= {"metrics.port": int(port)} | (
                {"metrics.address": host.strip("[]")} if host else {}
            )
        else:
            app.note("metrics_server_addr", f"host:port or :port is expected, not {address!r}")
    app.end("kaf-relay")


def _convert_topics(into: ImportedSettings, topics: object) -> Iterator[tuple[str, str]]:
    """One table, or a list of tables: the sample has a list of one."""
    for table in topics if isinstance(topics, list) else [topics]:
        for source, target in (table or {}).items() if isinstance(table, Mapping | None) else ():
            name, colon, partition = str(target).partition(":")
            if not isinstance(target, str) or not name or (colon and not partition.isdecimal()):
                into.note(
                    f"topics.{source}",
                    f"destination or destination:partition is expected, not {target!r}",
                )
            else:
                yield source, target


def _convert_access(table: Table, side: str, secret: bool) -> dict[str, Any]:
    """TLS and SASL settings of a cluster."""
    auth, tls = bool(table.take("enable_auth")), bool(table.take("enable_tls"))
    names = {
        "sasl_mechanism": "sasl_mechanism",
        "username": "sasl_username",
        "password": "sasl_password",
    }
    files = {
        "client_key_path": "ssl_key_file",
        "client_cert_path": "ssl_certificate_file",
        "ca_cert_path": "ssl_ca_file",
    }
    access = {
        f"{side}.security_protocol": (
            ("SASL_SSL" if tls else "SASL_PLAINTEXT") if auth else ("SSL" if tls else "PLAINTEXT")
        )
    }
    for is_used, switch, keys in ((auth, "enable_auth", names), (tls, "enable_tls", files)):
        for key, setting in keys.items():
            value = table.take(key)
            if value is None:
                continue
            if not is_used:
                table.note(key, f"{switch} is not set, so kaf-relay does not use it either")
            elif key == "password" and not secret:
                table.note_secret(key, f"{side}.sasl_password")
            elif key == "sasl_mechanism" and value not in MECHANISMS:
                table.note(key, f"one of {', '.join(MECHANISMS)} is expected, not {value!r}")
            else:
                access[f"{side}.{setting}"] = value
    return access


def _convert_servers(table: Table) -> str:
    servers = table.take("servers") or []
    return ",".join(map(str, servers if isinstance(servers, list) else [servers]))


def _convert_candidates(
    into: ImportedSettings, sources: list[Table], secret: bool, is_guessed: bool
) -> None:
    """All sources, each with its own settings and nothing in common: what one does not have it must
    not take over from the first.
    """
    if is_guessed:
        into.note(
            "sources",
            "kaf-relay copies from any of them with --mode failover, and from the first alone with"
            " --mode single: for that, import with --mode single",
        )
    addresses = []
    for number, source in enumerate(sources, 1):
        if number > CANDIDATES_MAX:
            into.note(
                source.path,
                f"not imported: at most {CANDIDATES_MAX} candidates have settings of their own",
            )
            continue
        addresses.append(_convert_source(source, f"source.{number}", secret))
        failovers = source.take("max_failovers")
        if failovers is not None and number == 1:
            into.values["source.max_failovers"] = failovers
            source.note(
                "max_failovers",
                f"{failovers}: counted for all candidates together, until the service ends",
            )
        elif failovers is not None:
            source.note("max_failovers", "the first candidate's counts, for all together")
        source.end("kaf-relay")
    into.values |= {"source.mode": "failover", "source.bootstrap_servers": ";".join(addresses)}


def _convert_source(source: Table, side: str, secret: bool) -> str:
    """A source cluster, whose settings begin with `side`; returns its addresses."""
    servers = _convert_servers(source)
    if side == "source":
        source.into.values["source.bootstrap_servers"] = servers
    source.into.values |= _convert_access(source, side, secret)
    source.drop("name", "only a label")
    source.drop("session_timeout", "stage one reads the source without a consumer group")
    if source.take("enable_log"):
        source.note("enable_log", "for logs of the clients, set librdkafka's raw option debug")
    source.put("max_wait_time", f"{side}.consumer_options.fetch.max.wait.ms", parse_duration_ms)
    return servers


def _convert_pool(pool: Table, failover: bool) -> None:
    pool.put("initial_offset", "source.start", lambda offset: OFFSETS[offset])
    if pool.take("backoff_enable") is False:
        pool.drop(
            "backoff_min backoff_max",
            "backoff_enable is not set, so kaf-relay does not use it either",
        )
    if failover:
        for key in ("healthcheck_interval", "request_timeout", "backoff_min", "backoff_max"):
            pool.put(key, f"source.{key}_ms", partial(check_duration, BY_NAME[f"source.{key}_ms"]))
        for key in ("offset_lag_threshold", "randomize_initial", "max_failovers"):
            pool.put(key, f"source.{key}")
    pool.drop(
        "healthcheck_interval offset_lag_threshold randomize_initial max_failovers",
        "used only with --mode failover",
    )
    pool.drop(
        "request_timeout backoff_min backoff_max",
        "Kafka's own client retries when the source does not answer, and then a new run starts",
    )
    retries = pool.take("max_retries")
    if retries not in (None, -1):
        pool.note(
            "max_retries",
            f"{retries}: reo retries without limit once it runs; connect_timeout_s limits the"
            " start",
        )
    pool.end("kaf-relay")


def _convert_target(target: Table, secret: bool) -> None:
    into = target.into
    into.values["destination.bootstrap_servers"] = _convert_servers(target)
    into.values |= _convert_access(target, "destination", secret)
    target.put(
        "flush_frequency",
        "producer.linger_ms",
        lambda duration: min(1000, parse_duration_ms(duration)),
    )
    target.put("compression", "producer.compression_type", str)
    if target.take("enable_idempotency") is False:
        target.note(
            "enable_idempotency",
            "false: producers are always idempotent, because exactly once needs it",
        )
    acks = target.take("commit_ack_type")
    if acks not in (None, "cluster", "default"):
        target.note(
            "commit_ack_type",
            f"{acks!r}: always cluster (acks=all); with less, an acknowledged record can be lost",
        )
    retries = target.take("max_retries")
    if retries not in (None, -1):
        target.note("max_retries", f"{retries}: reo retries without limit once it runs")
    if target.take("enable_log"):
        target.note("enable_log", "for logs of the clients, set librdkafka's raw option debug")
    target.drop("name", "only a label")
    target.drop(
        "max_wait_time max_failovers", "nothing is consumed from the target, and there is one"
    )
    target.drop("max_message_bytes", "the topics' max.message.bytes decide")
    target.drop(
        "batch_size flush_batch_size buffer_size",
        "the clients decide batches and buffers; see deduplicator.transaction_records and the raw"
        " options",
    )
    target.drop(
        "session_timeout request_timeout backoff_enable backoff_min backoff_max",
        "Kafka's own client retries within producer.delivery_timeout_ms",
    )
    target.end("kaf-relay")


def _convert_filters(into: ImportedSettings, filters: object) -> None:
    for name, content in filters.items() if isinstance(filters, Mapping) else ():
        enabled = isinstance(content, Mapping) and content.get("enabled")
        into.note(
            f"filters.{name}",
            (
                "a plug-in in Go cannot be loaded: write its condition as a filter of reo"
                if enabled
                else "is not enabled"
            ),
        )


def parse_duration_ms(duration: object) -> int:
    """Parse a duration in Go's format, like 1m30s; ValueError for anything else."""
    parts = re.findall(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)", str(duration))
    if not parts or "".join(number + unit for number, unit in parts) != str(duration):
        raise ValueError(f"a duration like 100ms is expected, not {duration!r}")
    return round(sum(float(number) * UNITS_MS[unit] for number, unit in parts))


def check_duration(setting: Setting, duration: object) -> int:
    """In ms; ValueError for what the setting would not take."""
    duration_ms = parse_duration_ms(duration)
    if not setting.minimum <= duration_ms <= setting.maximum:
        raise ValueError(f"from {setting.minimum} to {setting.maximum} ms is expected")
    return duration_ms


def merge_tables(trees: list[Tree]) -> Tree:
    """Later files win, key by key."""
    merged: Tree = {}
    for tree in trees:
        for key, value in tree.items():
            merged[key] = (
                merge_tables([merged[key], value])
                if isinstance(value, dict) and isinstance(merged.get(key), dict)
                else value
            )
    return merged
