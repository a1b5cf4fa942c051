"""`reo config import`: kaf-relay's TOML becomes a settings file of reo's, which is read and does
what kaf-relay did.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from common.settings import load
from reo import cli
from reo.importers.kaf_relay import merge_tables, parse_duration_ms

FULL = """
[app]
log_level = "warn"
metrics_server_addr = "127.0.0.1:7081"
[[topics]]
orders = "copy"
[source_pool]
initial_offset = "end"
healthcheck_interval = "3s"
offset_lag_threshold = 1000
max_retries = -1
backoff_enable = true
backoff_min = "2s"
backoff_max = "1m30s"
request_timeout = "100ms"
randomize_initial = true
[[sources]]
name = "one"
servers = ["a:1", "b:2"]
session_timeout = "6s"
enable_auth = true
sasl_mechanism = "SCRAM-SHA-512"
username = "alice"
password = "s3cr3t-source"
max_wait_time = "10ms"
max_failovers = 5
enable_tls = false
client_key_path = ""
client_cert_path = ""
ca_cert_path = ""
enable_log = false
[[sources]]
name = "two"
servers = ["c:3"]
username = "bob"
[target]
name = "three"
servers = ["d:4"]
enable_log = true
enable_auth = true
sasl_mechanism = "PLAIN"
username = "carol"
password = "s3cr3t-target"
enable_tls = true
ca_cert_path = "CA"
client_key_path = ""
client_cert_path = ""
enable_idempotency = false
commit_ack_type = "leader"
flush_frequency = "20ms"
session_timeout = "6s"
max_retries = 3
flush_batch_size = 1000
batch_size = 1000
buffer_size = 100000
max_message_bytes = 10000000
compression = "zstd"
backoff_enable = true
backoff_min = "2s"
backoff_max = "10s"
request_timeout = "100ms"
[filters.test]
enabled = true
path = "test.bin"
config = "{}"
"""


def tree(text: str = FULL) -> dict[str, Any]:
    """As the command reads it."""
    return tomllib.loads(text)


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    """What the command prints: the file, and the notes."""
    assert cli.main(["config", "import", *arguments]) == 0
    printed = capsys.readouterr()
    return printed.out, printed.err


def test_the_file_that_is_printed_is_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The settings do what kaf-relay did; the passwords come from elsewhere; every note is a
    comment in the file and a line for the operator.
    """
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----")
    (tmp_path / "relay.toml").write_text(FULL.replace('"CA"', f'"{tmp_path / "ca.pem"}"'))
    file, notes = output(capsys, str(tmp_path / "relay.toml"), "--mode", "single")
    assert "s3cr3t" not in file + notes
    (tmp_path / "reo.toml").write_text(file)
    loaded = load(
        {"REO_SOURCE_SASL_PASSWORD": "x", "REO_DESTINATION_SASL_PASSWORD": "y"},
        str(tmp_path / "reo.toml"),
    )
    expected = {
        "source.bootstrap_servers": "a:1,b:2",
        "source.topic": "orders",
        "destination.bootstrap_servers": "d:4",
        "destination.topic": "copy",
        "log.level": "WARNING",
        "log.format": "json",
        "metrics.address": "127.0.0.1",
        "metrics.port": 7081,
        "source.start": "latest",
        "source.security_protocol": "SASL_PLAINTEXT",
        "source.sasl_mechanism": "SCRAM-SHA-512",
        "source.sasl_username": "alice",
        "source.consumer_options": {"fetch.max.wait.ms": "10"},
        "source.mode": "single",
        "destination.security_protocol": "SASL_SSL",
        "destination.ssl_ca_file": str(tmp_path / "ca.pem"),
        "producer.linger_ms": 20,
        "producer.compression_type": "zstd",
    }
    assert {name: loaded.values[name] for name in expected} == expected
    assert [line.removeprefix("reo config import: ") for line in notes.splitlines()] == [
        line[2:] for line in file.splitlines() if line.startswith("# ")
    ]


def test_several_sources_are_candidates(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """With --mode failover, which is meant where there are several: all of the pool, and each
    source with what is its own and nothing of the first's.
    """
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----")
    (tmp_path / "relay.toml").write_text(FULL.replace('"CA"', f'"{tmp_path / "ca.pem"}"'))
    for mode in ((), ("--mode", "failover")):
        file, notes = output(capsys, str(tmp_path / "relay.toml"), *mode)
        assert "s3cr3t" not in file + notes
        assert "REO_SOURCE_1_SASL_PASSWORD_FILE" in notes
        assert ("import with --mode single" in notes) == (not mode)
        (tmp_path / "reo.toml").write_text(file)
        loaded = load(
            {"REO_SOURCE_1_SASL_PASSWORD": "x", "REO_DESTINATION_SASL_PASSWORD": "y"},
            str(tmp_path / "reo.toml"),
        )
        expected = {
            "source.mode": "failover",
            "source.bootstrap_servers": "a:1,b:2;c:3",
            "source.healthcheck_interval_ms": 3000,
            "source.offset_lag_threshold": 1000,
            "source.request_timeout_ms": 100,
            "source.backoff_min_ms": 2000,
            "source.backoff_max_ms": 90_000,
            "source.randomize_initial": True,
            "source.max_failovers": 5,
            "source.start": "latest",
            "source.security_protocol": "PLAINTEXT",
            "source.1.sasl_username": "alice",
            "source.1.consumer_options": {"fetch.max.wait.ms": "10"},
            "source.2.sasl_username": "",
        }
        assert {name: loaded.values[name] for name in expected} == expected
        assert [cluster.security.security_protocol for cluster in loaded.sources] == [
            "SASL_PLAINTEXT",
            "PLAINTEXT",
        ]
        assert "sources[1].username: enable_auth is not set" in notes


def test_several_topics_are_rules(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """In kaf-relay's own notation, with names that TOML has to quote; the application that they
    need is named, and that it was.
    """
    (tmp_path / "relay.toml").write_text(
        '[topics]\norders = "copy:1"\n"Invoices.v1" = "invoices-v1"\n[[sources]]\nservers ='
        ' ["a:1"]\n[target]\nservers = ["b:1"]\n'
    )
    file, notes = output(capsys, str(tmp_path / "relay.toml"))
    (tmp_path / "reo.toml").write_text(file)
    loaded = load({}, str(tmp_path / "reo.toml"))
    assert {
        (route.source_topic, route.destination_topic, route.mapping)
        for route in loaded.build_routes()
    } == {("orders", "copy", "1"), ("Invoices.v1", "invoices-v1", "same")}
    assert loaded.application == "kaf-relay"
    assert "application: has no default with several topics" in notes


def test_secrets_are_printed_when_they_are_asked_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Only then."""
    (tmp_path / "relay.toml").write_text(FULL)
    file, notes = output(capsys, str(tmp_path / "relay.toml"), "--with-secrets")
    assert "s3cr3t-source" in file
    assert "s3cr3t-target" in file
    assert "s3cr3t" not in notes


def test_several_files_are_merged_as_kaf_relay_does() -> None:
    """Tables key by key, lists whole; the later file wins."""
    assert merge_tables(
        [tree("a = 1\n[t]\nx = 1\ny = 1\n[[l]]\nz = 1"), tree("[t]\nx = 2\n[[l]]\nz = 2")]
    ) == tree("a = 1\n[t]\nx = 2\ny = 1\n[[l]]\nz = 2")


@pytest.mark.parametrize(
    ("text", "ms"),
    [("10ms", 10), ("1m30s", 90_000), ("1.5h", 5_400_000), ("2s", 2000), ("500us", 0)],
)
def test_durations_are_gos(text: str, ms: int) -> None:
    """As time.ParseDuration reads them; a number without a unit is none."""
    assert parse_duration_ms(text) == ms
    for wrong in ("10", "ms", "1 s", "", 10):
        with pytest.raises(ValueError, match="a duration like 100ms"):
            parse_duration_ms(wrong)


def test_a_file_that_can_not_be_read_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Missing, or no TOML: exit code 2."""
    (tmp_path / "broken.toml").write_text("[a")
    for file in ("broken.toml", "missing.toml"):
        assert cli.main(["config", "import", str(tmp_path / file)]) == 2
        assert file in capsys.readouterr().err
