"""`reo config show`: every setting with where it came from; no secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from common.settings.schema import SETTINGS
from reo import cli
from tests.unit.common.settings.test_settings import GOOD

SECRETS = {
    "REO_SOURCE_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
    "REO_SOURCE_SASL_MECHANISM": "PLAIN",
    "REO_SOURCE_SASL_USERNAME": "alice",
    "REO_SOURCE_SASL_PASSWORD": "s3cr3t-one",
    "REO_SOURCE_CONSUMER_OPTIONS_SSL_KEY_PASSWORD": "s3cr3t-two",
    "REO_INTERMEDIATE_CONSUMER_OPTIONS_SSL_KEY_PEM": "s3cr3t-three",
    "REO_SOURCE_CONSUMER_OPTIONS_BASIC_AUTH_USER_INFO": "me:s3cr3t-four",
    "REO_DESTINATION_CLASS": "deduplicator.postgresql:PostgresqlStore",
    "REO_DESTINATION_CONNECTION": "host=db password=s3cr3t-five",
    "REO_DESTINATION_OPTIONS": (
        '{"schema": "shown", "http": {"api_token": "s3cr3t-six", "proxies": ["http://u:s3cr3t@p"]},'
        ' "dsn": "host=db password=s3cr3t-seven"}'
    ),
    "REO_FILTER_FUNCTION": "some:function",
    "REO_FILTER_OPTIONS": '{"some:function": {"password": "s3cr3t-eight", "limit": 7}}',
}


def run_config_show(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    environment: dict[str, str],
    *arguments: str,
) -> str:
    """What the command prints."""
    monkeypatch.setattr("os.environ", environment)
    assert cli.main(["config", "show", *arguments]) == 0
    return capsys.readouterr().out


def test_every_setting_is_shown_with_what_gave_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The file, a variable by its own name or another's, the command line, a default, a default
    that follows from others.
    """
    file = tmp_path / "reo.toml"
    file.write_text(
        "[producer]\nlinger_ms = 7\ncompression_type ="
        ' "lz4"\n[destination.producer_options]\nclient.rack = "b"\n'
    )
    environment = {
        **GOOD,
        "REO_PRODUCER_COMPRESSION_TYPE": "zstd",
        "STREAMS_NUM_STREAM_THREADS": "3",
        "REO_SOURCE_CONSUMER_OPTIONS_CLIENT_RACK": "a",
    }
    found = json.loads(
        run_config_show(
            monkeypatch,
            capsys,
            environment,
            "--json",
            "--settings",
            str(file),
            "--topic",
            "invoices",
        )
    )
    expected = {
        "producer.linger_ms": (7, f"{file}: producer.linger_ms"),
        "producer.compression_type": ("zstd", "REO_PRODUCER_COMPRESSION_TYPE"),
        "deduplicator.workers": (3, "STREAMS_NUM_STREAM_THREADS"),
        "source.topic": ("invoices", "--topic"),
        "stop_at_end": (False, "default"),
        "destination.topic": ("invoices", "default, follows from others"),
        "application": ("reo-invoices", "default, follows from others"),
        "source.consumer_options.client.rack": ("a", "REO_SOURCE_CONSUMER_OPTIONS_CLIENT_RACK"),
        "destination.producer_options.client.rack": (
            "b",
            f"{file}: destination.producer_options.client.rack",
        ),
    }
    assert {name: (found[name]["value"], found[name]["given_by"]) for name in expected} == expected
    assert {
        setting.name for setting in SETTINGS if setting.kind != "options" and not setting.candidate
    } <= set(found)


def test_rules_for_several_topics_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As they were given; the settings of a single topic stay empty."""
    several = {name: value for name, value in GOOD.items() if name != "REO_SOURCE_TOPIC"} | {
        "REO_TOPICS": "orders,invoices=copy:1",
        "REO_APPLICATION": "many",
    }
    found = json.loads(run_config_show(monkeypatch, capsys, several, "--json"))
    assert found["topics"] == {"value": "orders,invoices=copy:1", "given_by": "REO_TOPICS"}
    assert {
        found[name]["value"] for name in ("source.topic", "destination.topic", "intermediate.topic")
    } == {""}


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_no_secret_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    """Settings and raw options: that there is one and what gave it, not more."""
    printed = run_config_show(monkeypatch, capsys, GOOD | SECRETS, *arguments)
    assert "s3cr3t" not in printed
    assert printed.count("(secret)") == 9
    assert "REO_SOURCE_SASL_PASSWORD" in printed
    for kept in ('"schema":"shown"', '"limit":7'):
        assert kept in printed.replace("\\", "")


def test_wrong_settings_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the message and the exit code of every other command."""
    monkeypatch.setattr("os.environ", GOOD | {"REO_METRICS_PORT": "x"})
    assert cli.main(["config", "show"]) == 2
    assert "REO_METRICS_PORT" in capsys.readouterr().err
