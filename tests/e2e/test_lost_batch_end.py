"""What Spark does in a batch whose end the source has lost: with `--stop-at-end` it is what ends
the run, and the simulated Spark does the same.
"""

from __future__ import annotations

import os

import pytest

from tests.harness.commands import run_python
from tests.harness.kafka import Clusters, make_record

RECORDS = 5
POLL_TIMEOUT_MS = 3000
"""Stage one does not set it: there it is `spark.network.timeout`, two minutes."""
QUERY = f"""
import json, os
from common.routes import TopicPartition
from common.settings import load
from replicator import source
from replicator.spark.session import start_session

settings = load(os.environ)
spark = start_session(settings, 1)
topic = settings.source.topic
options = source.build_options(settings, {{TopicPartition(topic, 0): 0}})
for end in ({RECORDS}, {RECORDS} + 1):
    reader = spark.read.format("kafka").options(**options)
    reader.option("endingOffsets", json.dumps({{topic: {{"0": end}}}}))
    reader.option("kafkaConsumer.pollTimeoutMs", "{POLL_TIMEOUT_MS}")
    print("read", reader.load().count(), flush=True)
"""


@pytest.mark.long  # a fact about the Spark that is pinned
def test_a_batch_fails_when_its_last_record_is_gone(clusters: Clusters, topic: str) -> None:
    """A batch that ends where the topic ends is read; one that ends an offset later fails after the
    poll timeout, and does not wait for ever.
    """
    clusters.source.create(topic, 1)
    clusters.source.write(topic, [(0, make_record(number)) for number in range(RECORDS)])
    done = run_python(
        QUERY,
        environment={
            "PATH": os.environ["PATH"],
            "REO_SOURCE_BOOTSTRAP_SERVERS": clusters.source.address,
            "REO_DESTINATION_BOOTSTRAP_SERVERS": clusters.destination.address,
            "REO_SOURCE_TOPIC": topic,
        },
    )
    assert done.returncode != 0
    assert [line for line in done.stdout.splitlines() if line.startswith("read ")] == [
        f"read {RECORDS}"
    ]
    assert "KafkaIllegalStateException: Some data may have been lost" in done.stderr
    assert f"Could not read records in offset [{RECORDS}, {RECORDS + 1})" in done.stderr
