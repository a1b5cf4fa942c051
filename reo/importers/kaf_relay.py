"""Converts kaf-relay's TOML to settings of reo. Several files are merged in order, tables key by
key, lists as a whole, as koanf does; durations are Go's.

Its source: config.sample.toml, init.go and pkg/relay/config.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from common.settings.conversion import to_text
from common.settings.schema import CANDIDATES_MAX
from reo.importers.imported_settings import ImportedSettings

Tree = dict[str, Any]
OFFSETS = {"start": "earliest", "end": "latest"}
UNITS_MS = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4, "h": 3.6e6}
ACCESS = {
    "sasl_mechanism": ("enable_auth", "sasl_mechanism"),
    "username": ("enable_auth", "sasl_username"),
    "password": ("enable_auth", "sasl_password"),
    "client_key_path": ("enable_tls", "ssl_key_file"),
    "client_cert_path": ("enable_tls", "ssl_certificate_file"),
    "ca_cert_path": ("enable_tls", "ssl_ca_file"),
}
"""By key: what has to be switched on for it, and the setting."""
DURATIONS = ("healthcheck_interval", "request_timeout", "backoff_min", "backoff_max")
NUMBERS = ("offset_lag_threshold", "randomize_initial", "max_failovers")
"""Keys of the pool that are settings with --mode failover."""
AS_REO = {
    "enable_log": (False,),
    "enable_idempotency": (True,),
    "commit_ack_type": ("cluster", "default"),
    "max_retries": (-1,),
}
"""Values that ask for what reo does anyway."""
NO_EQUIVALENT = {
    r".*\.name": "only a label",
    r"source.*\.session_timeout|source_pool\.(group|instance)_id": (
        "stage one reads the source without a consumer group"
    ),
    r".*\.enable_log": "for logs of the clients, set librdkafka's raw option debug",
    r"sources.*\.max_failovers": (
        "with --mode failover the first source's counts, for all together; else there are none"
    ),
    r"source_pool\.(healthcheck_interval|offset_lag_threshold|randomize_initial|max_failovers)": (
        "used only with --mode failover"
    ),
    r"source_pool\.(request_timeout|backoff_.*)": (
        "Kafka's own client retries when the source does not answer, and then a new run starts"
    ),
    r".*\.max_retries": (
        "reo retries without limit once it runs; connect_timeout_s limits the start"
    ),
    r"target\.enable_idempotency": (
        "producers are always idempotent, because exactly once needs it"
    ),
    r"target\.commit_ack_type": (
        "always cluster (acks=all); with less, an acknowledged record can be lost"
    ),
    r"target\.max_(wait_time|failovers)": "nothing is consumed from the target, and there is one",
    r"(consumers|producer|checkpoint)\b.*|app\.retry_backoff.*": (
        "of kaf-relay before 0.2: write it as [[sources]] and [target], then import again"
    ),
    r"target\.max_message_bytes": "the topics' max.message.bytes decide",
    r"target\.(batch_size|flush_batch_size|buffer_size)": (
        "the clients decide batches and buffers; see deduplicator.transaction_records and the raw"
        " options"
    ),
    r"target\.(session_timeout|request_timeout|backoff_.*)": (
        "Kafka's own client retries within producer.delivery_timeout_ms"
    ),
}


def import_settings(tree: Tree, with_secrets: bool = False, mode: str = "") -> ImportedSettings:
    """The settings for what kaf-relay does with this configuration and this `--mode`; without one:
    `failover` where there are several sources.
    """
    into = ImportedSettings("kaf-relay", dict(_flatten(tree)), with_secrets)
    _convert_app(into)
    _convert_topics(into)
    sources = tree.get("sources", [])
    tables = (
        [f"sources[{number}]" for number in range(len(sources))]
        if isinstance(sources, list)
        else ["sources"]
    )
    failover = mode == "failover" or (not mode and len(tables) > 1)
    if failover and not mode:
        into.note(
            "sources",
            "kaf-relay copies from any of them with --mode failover, and from the first alone with"
            " --mode single: for that, import with --mode single",
        )
    _convert_sources(into, tables, failover)
    _convert_pool(into, failover)
    _convert_access(into, "target", "destination")
    into.put("target.servers", "destination.bootstrap_servers")
    into.put(
        "target.flush_frequency",
        "producer.linger_ms",
        lambda duration: min(1000, parse_duration_ms(duration)),
    )
    into.put("target.compression", "producer.compression_type")
    for key in [key for key in into.left if into.left[key] in AS_REO.get(key.split(".")[-1], ())]:
        del into.left[key]
    into.end(NO_EQUIVALENT)
    return into


def _flatten(tree: Tree) -> Iterator[tuple[str, Any]]:
    """By `table.key`, or `table[number].key` in a list of tables. A filter is one value."""
    for name, content in tree.items():
        tables = (
            {f"{name}[{number}]": table for number, table in enumerate(content)}
            if isinstance(content, list)
            else {name: content}
        )
        for table, keys in tables.items():
            if isinstance(keys, Mapping):
                yield from ((f"{table}.{key}", value) for key, value in keys.items())
            else:
                yield table, keys


def _convert_app(into: ImportedSettings) -> None:
    into.values["log.format"] = "json"  # all that kaf-relay writes
    into.put("app.log_level", "log.level", lambda level: {"warn": "WARNING"}.get(level, level))
    address = into.left.pop("app.metrics_server_addr", ":")
    host, colon, port = str(address).rpartition(":")
    if colon and port.isdecimal():
        into.values["metrics.port"] = int(port)
        into.values |= {"metrics.address": host.strip("[]")} if host else {}
    elif address not in ("", ":"):
        into.note("app.metrics_server_addr", f"host:port or :port is expected, not {address!r}")
    for key in into.find(r"filters\..*"):
        content = into.left.pop(key)
        into.note(
            key,
            "a plug-in in Go cannot be loaded: write its condition as a filter of reo"
            if isinstance(content, Mapping) and content.get("enabled")
            else "is not enabled",
        )


def _convert_topics(into: ImportedSettings) -> None:
    """One table, or a list of tables: the sample has a list of one."""
    for key in into.find(r"topics(\[\d+\])?\..*"):
        target = into.left.pop(key)
        if isinstance(target, str) and re.fullmatch(r"[^:]+(:\d+)?", target):
            into.topics[key.partition(".")[2]] = target
        else:
            into.note(key, f"destination or destination:partition is expected, not {target!r}")


def _convert_sources(into: ImportedSettings, tables: list[str], failover: bool) -> None:
    """The first one, or all of them as candidates, each with its own settings and nothing in
    common: what one does not have it must not take over from the first.
    """
    used = tables[: CANDIDATES_MAX if failover else 1]
    servers = []
    for number, table in enumerate(used, 1):
        side = f"source.{number}" if failover else "source"
        servers.append(to_text(into.left.pop(f"{table}.servers", "")))
        _convert_access(into, table, side)
        into.put(
            f"{table}.max_wait_time",
            f"{side}.consumer_options.fetch.max.wait.ms",
            parse_duration_ms,
        )
    into.values["source.bootstrap_servers"] = ";".join(servers)
    if failover:
        into.values["source.mode"] = "failover"
        key = f"{tables[0]}.max_failovers" if tables else ""
        if key in into.left:
            into.note(key, "counted for all candidates together, until the service ends")
            into.put(key, "source.max_failovers")
    for table in tables[len(used) :]:
        for key in into.find(rf"{re.escape(table)}\..*"):
            del into.left[key]
        into.note(
            table,
            f"not imported: at most {CANDIDATES_MAX} candidates have settings of their own"
            if failover
            else "kaf-relay does not use it with --mode single",
        )


def _convert_pool(into: ImportedSettings, failover: bool) -> None:
    into.put("source_pool.initial_offset", "source.start", OFFSETS.__getitem__)
    if into.left.pop("source_pool.backoff_enable", True) is False:
        into.drop(r"source_pool\.backoff_.*", "backoff_enable is not set, so it is not used")
    for key in DURATIONS if failover else ():
        into.put(f"source_pool.{key}", f"source.{key}_ms", parse_duration_ms)
    for key in NUMBERS if failover else ():
        into.put(f"source_pool.{key}", f"source.{key}")


def _convert_access(into: ImportedSettings, table: str, side: str) -> None:
    """TLS and SASL settings of a cluster."""
    is_on = {
        switch: into.left.pop(f"{table}.{switch}", False)
        for switch in ("enable_auth", "enable_tls")
    }
    into.values[f"{side}.security_protocol"] = ("SASL_" if is_on["enable_auth"] else "") + (
        "SSL" if is_on["enable_tls"] else "PLAINTEXT"
    )
    for key, (switch, setting) in ACCESS.items():
        name = f"{table}.{key}"
        if not is_on[switch]:
            into.drop(re.escape(name), f"{switch} is not set, so kaf-relay does not use it either")
        else:
            into.put(name, f"{side}.{setting}")


def parse_duration_ms(duration: object) -> int:
    """Parse a duration in Go's format, like 1m30s; ValueError for anything else."""
    parts = re.findall(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)", str(duration))
    if not parts or "".join(number + unit for number, unit in parts) != str(duration):
        raise ValueError(f"a duration like 100ms is expected, not {duration!r}")
    return round(sum(float(number) * UNITS_MS[unit] for number, unit in parts))


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
