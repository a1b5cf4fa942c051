"""The whole service, told in other ways: settings from a file and by kafka-reo's names, clusters by
other addresses, both stages as a library.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.conftest import Start
from tests.harness.commands import run_python
from tests.harness.kafka import COPY_S, Clusters, make_records, until
from tests.harness.library import LIBRARY
from tests.harness.service import build_environment
from tests.harness.stage_one import wait_for_frontiers, wrap_records
from tools.demo.broker import free_port

RECORDS = 1000


@pytest.mark.parametrize("way", ["settings file", "kafka-reo's names"])
def test_settings_come_from_a_file_or_by_kafka_reos_names(
    clusters: Clusters, topic: str, start: Start, tmp_path: Path, way: str
) -> None:
    """The same copy, told in the two other ways: topics, group and transactional ids are the ones
    that were named.
    """
    clusters.source.create(topic, 1)
    clusters.source.write(topic, make_records(range(20), 1))
    copy, proxy, group = f"{topic}-copy", f"{topic}-between", f"{topic}-app"
    if way == "settings file":
        file = tmp_path / "reo.toml"
        file.write_text(
            f'application = "{group}"\n[source]\ntopic = "{topic}"\nbootstrap_servers ='
            f' "{clusters.source.address}"\n[destination]\ntopic = "{copy}"\nbootstrap_servers ='
            f' "{clusters.destination.address}"\n[intermediate]\ntopic = "{proxy}"\n'
        )
        environment = {"REO_SETTINGS_FILE": str(file)}
    else:
        environment = {
            "APPLICATION_NAME": group,
            "KAFKA_CLUSTERS_SOURCE_TOPIC": topic,
            "KAFKA_CLUSTERS_SOURCE_BOOTSTRAP_SERVERS": clusters.source.address,
            "KAFKA_CLUSTERS_DESTINATION_TOPIC": copy,
            "KAFKA_CLUSTERS_DESTINATION_BOOTSTRAP_SERVERS": clusters.destination.address,
            "KAFKA_CLUSTERS_DESTINATION_TOPIC_PROXY": proxy,
            "STREAMS_NUM_STREAM_THREADS": "1",
            "KAFKA_CONFIG_CONSUMER_AUTO_RESET": "earliest",
        }
    service = start(
        topic, "deduplicator", environment=environment | {"REO_METRICS_PORT": str(free_port())}
    )
    wait_for_frontiers(service, 1)
    records = [(0, number, record) for number, (_, record) in enumerate(make_records(range(20), 1))]
    clusters.destination.write(proxy, wrap_records(clusters, topic, records))
    until(
        lambda: (
            clusters.destination.count_offsets(copy) >= 20 and not clusters.differences(topic, copy)
        ),
        "the copy is exact",
    )
    groups = {
        found.group_id for found in clusters.destination.admin.list_consumer_groups().result().valid
    }
    assert group in groups
    assert not re.search(rf"reo-{topic}", " ".join(groups))
    service.stop()


@pytest.mark.long
def test_the_clusters_by_other_addresses(clusters: Clusters, topic: str, start: Start) -> None:
    """A host by another name, and a broker that is not there: the same clusters, so the copy goes
    on where it was.
    """
    clusters.source.create(topic, 2)
    clusters.source.write(topic, make_records(range(100), 2))
    assert start(topic, "--stop-at-end").wait_for_exit() == 0
    clusters.source.write(topic, make_records(range(100, 200), 2))
    others = {
        f"{side}_bootstrap_servers": (
            f"127.0.0.1:{free_port()},{cluster.address.replace('127.0.0.1', 'localhost')}"
        )
        for side, cluster in (("source", clusters.source), ("destination", clusters.destination))
    }
    service = start(topic, "--stop-at-end", **others)
    assert service.wait_for_exit() == 0, service.read_log_tail()
    assert clusters.differences(topic) == []


@pytest.mark.long
def test_both_stages_as_a_library(clusters: Clusters, topic: str) -> None:
    """Called from Python, in one process: stage one ends when all is copied, stage two when it is
    told to.
    """
    clusters.source.create(topic, 2)
    clusters.source.write(topic, make_records(range(RECORDS), 2))
    environment = {"PATH": os.environ["PATH"]} | build_environment(
        clusters, topic, {"stop_at_end": "true"}
    )
    done = run_python(LIBRARY, environment=environment, timeout_s=COPY_S)
    assert done.returncode == 0, done.stderr
    assert clusters.differences(topic) == []
