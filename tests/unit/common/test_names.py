"""The names of kafka-reo, kafka-topic-mirror and kaf-relay, from these projects' own files: each is
taken, or named as not taken with the reason.
"""

from __future__ import annotations

import re

import pytest

from common.settings import load
from common.settings.foreign_variables import IGNORED, NAMES
from common.settings.schema import BY_ENVIRONMENT, BY_NAME
from reo.importers.kaf_relay import import_settings
from tests.harness.kafka import ROOT
from tests.unit.common.settings.test_kafka_topic_mirror_variables import MIRROR

KAFKA_REO = {
    "APPLICATION_NAME": "copy",
    "KAFKA_CLUSTERS_SOURCE_BOOTSTRAP_SERVERS": "a:1",
    "KAFKA_CLUSTERS_SOURCE_TOPIC": "orders",
    "KAFKA_CLUSTERS_DESTINATION_BOOTSTRAP_SERVERS": "b:1",
    "KAFKA_CLUSTERS_DESTINATION_TOPIC": "orders2",
    "KAFKA_CLUSTERS_DESTINATION_TOPIC_PROXY": "between",
    "KAFKA_CONFIG_CONSUMER_FETCH_MIN_BYTES": "1048576",
    "KAFKA_CONFIG_CONSUMER_AUTO_RESET": "earliest",
    "KAFKA_CONFIG_PRODUCER_LINGER_MS": "10",
    "KAFKA_CONFIG_PRODUCER_COMPRESSION_TYPE": "gzip",
    "KAFKA_CONFIG_PRODUCER_DELIVERY_TIMEOUT_MS": "604800000",
    "KAFKA_CONFIG_PRODUCER_ACKS": "all",
    "STREAMS_REPLICATION_FACTOR": "3",
    "STREAMS_NUM_STANDBY_REPLICAS": "0",
    "STREAMS_NUM_STREAM_THREADS": "3",
    "STREAMS_BUFFER_CONFIG_MAX_BYTES": "268435456",
    "LOG_LEVEL": "INFO",
}
"""With its defaults."""
TOPIC_MIRROR = {
    **MIRROR,
    "CLIENT_ID": "c",
    "CONSUMER_GROUP": "g",
    "NEWEST_OFFSET": "true",
    "MAX_PUBLISH": "1000",
    "PROM_SERVER_ADDR": ":9095",
}
CLIENT = (
    "name servers session_timeout enable_auth sasl_mechanism username password max_wait_time"
    " max_failovers enable_tls client_key_path client_cert_path ca_cert_path enable_log"
)
RELAY = {
    "app": "log_level metrics_server_addr",
    "source_pool": (
        "initial_offset healthcheck_interval offset_lag_threshold max_retries max_failovers"
        " backoff_enable backoff_min backoff_max request_timeout randomize_initial group_id"
        " instance_id"
    ),
    "sources[]": CLIENT,
    "target": (
        f"{CLIENT} enable_idempotency commit_ack_type compression flush_frequency flush_batch_size"
        " batch_size buffer_size max_message_bytes max_retries backoff_enable backoff_min"
        " backoff_max request_timeout"
    ),
    "filters.<name>": "enabled path config",
    "topics": "<source>",
}
RELAY_OPTIONS = "--config --mode --stop-at-end --filter --topic --version"
METRICS = (
    "messages_relayed_total messages_filtered_total source_errors_total source_unhealthy_total"
    " source_kafka_errors_total source_highwatermark source_candidate_switches_total"
    " source_connections_total source_lag_threshold_exceeded_total target_errors_total"
    " target_kafka_errors_total target_inlet_blocks_total target_flush_batch_size"
    " target_flush_duration_seconds target_flush_retries_total consumed_messages_count"
    " produced_messages_count"
)
PAGE = (ROOT / "docs" / "how-to" / "coming-from.md").read_text()


def rows() -> dict[str, str]:
    """By name, or by table and key, what the page says of it."""
    found = {}
    for names, here in re.findall(r"^\| (`[^|]+`) \| (.+) \|$", PAGE, re.MULTILINE):
        table = ""
        for name in re.findall(r"`([^`]+)`", names):
            table = name.rpartition(".")[0] if "." in name else table
            found[name if "." in name or not table else f"{table}.{name}"] = here
    return found


@pytest.mark.parametrize(
    "given", [KAFKA_REO, TOPIC_MIRROR], ids=["kafka-reo", "kafka-topic-mirror"]
)
def test_every_variable_is_taken_or_named(given: dict[str, str]) -> None:
    """Taken: the setting that the page names has its value from it. Not taken: the start says so,
    with the reason, and so does the page.
    """
    loaded = load(given)
    for name in given:
        ours = (
            [BY_ENVIRONMENT[name].name]
            if name in BY_ENVIRONMENT
            else [setting for mirror, setting, _ in NAMES if mirror == name]
        )
        if ours:
            assert name not in IGNORED
            assert all(
                str(loaded.given_by[setting]) == name and f"`{setting}`" in rows()[name]
                for setting in ours
            )
        else:
            assert f"{name} has no effect: {IGNORED[name]}" in loaded.list_warnings()
            assert rows()[name].startswith("not taken: ")
    assert len(loaded.list_warnings()) == len(IGNORED.keys() & given)


def test_names_of_other_programs_are_not_mentioned() -> None:
    """Without that program's own names beside them they belong to no program; a child process,
    which has reo's names, does not say it again.
    """
    assert (
        load(
            {
                "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1",
                "REO_SOURCE_TOPIC": "o",
                "REO_DESTINATION_BOOTSTRAP_SERVERS": "b:1",
                "LOG_LEVEL": "DEBUG",
                "MAX_PUBLISH": "5",
            }
        ).list_warnings()
        == []
    )
    assert load(load(KAFKA_REO).build_environment() | {"LOG_LEVEL": "INFO"}).list_warnings() == []


def test_every_key_of_kaf_relay_has_its_row() -> None:
    """Also none that it does not have; each is known to `reo config import`, and each setting that
    a row names exists.
    """
    known = {f"{table}.{key}" for table, names in RELAY.items() for key in names.split()}
    of_file = {name for name in rows() if "." in name and not name.startswith(("reo", "-"))}
    assert of_file == known
    assert {*RELAY_OPTIONS.split(), *METRICS.split()} <= rows().keys()
    values = {"enable_auth": True, "enable_tls": True, "backoff_enable": True, "servers": ["a:1"]}
    for table in ("app", "source_pool", "sources[]", "target"):
        content = {key: values.get(key, "1s") for key in RELAY[table].split()}
        notes = import_settings(
            {table.removesuffix("[]"): [content] if "[]" in table else content}
        ).notes
        assert not [key for key, why in notes if "unknown key" in why], table
    settings = {
        name for here in rows().values() for name in re.findall(r"`([a-z]+\.[a-z_0-9]+)`", here)
    }
    assert settings - set(BY_NAME) - {"max.message"} == set()
