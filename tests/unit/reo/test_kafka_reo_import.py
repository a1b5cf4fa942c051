"""`reo config import` of kafka-reo's config.yaml."""

from __future__ import annotations

from pathlib import Path

import pytest

from common import settings
from reo import cli

FILE = """
application:
  name: "exactly-once-replicator"
kafka:
  clusters:
    source:
      bootstrap-servers: "localhost-source:9092"
      topic: "source-topic"
    destination:
      bootstrap-servers: "localhost-destination:9092"
      topic: "destination-topic"
      topic-proxy: "between"
  config:
    consumer:
      fetch-min-bytes: "1048576"  # 1MB
      auto-reset: "latest"
    producer:
      linger-ms: "10"
      compression-type: "gzip"
      delivery-timeout-ms: "604800000"
      acks: "1"
streams:
  replication-factor: "3"
  num-standby-replicas: "0"
  num-stream-threads: "3"
  commit-interval: "PT1S"
  buffer-config:
    max-bytes: "268435456"
"""


def test_the_file_becomes_settings(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Every key has its setting, or is named with the reason why it has none."""
    given, made = tmp_path / "config.yaml", tmp_path / "reo.toml"
    given.write_text(FILE)
    assert cli.main(["config", "import", str(given)]) == 0
    printed = capsys.readouterr()
    made.write_text(printed.out)
    loaded = settings.load({}, str(made))
    assert {name: loaded.values[name] for name in loaded.given_by} == {
        "application": "exactly-once-replicator",
        "source.bootstrap_servers": "localhost-source:9092",
        "source.topic": "source-topic",
        "source.fetch_min_bytes": 1_048_576,
        "source.start": "latest",
        "destination.bootstrap_servers": "localhost-destination:9092",
        "destination.topic": "destination-topic",
        "intermediate.topic": "between",
        "producer.linger_ms": 10,
        "producer.compression_type": "gzip",
        "producer.delivery_timeout_ms": 604_800_000,
        "topics.replication_factor": 3,
        "deduplicator.workers": 3,
    }
    for key in (
        "kafka.config.producer.acks: '1' has no counterpart in producer.acks",
        "streams.num-standby-replicas: there is no state store",
        "streams.commit-interval: unknown key of kafka-reo",
        "streams.buffer-config.max-bytes: there is no buffer",
    ):
        assert f"reo config import: {key}" in printed.err
