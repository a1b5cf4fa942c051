"""kafka-topic-mirror's environment runs as it is."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest

from tests.conftest import Start
from tests.e2e.test_client_options_service import list_clients
from tests.harness.admin_requests import ANSWER_S
from tests.harness.kafka import COPY_S, Clusters, make_records, until
from tools.demo.broker import free_port


@pytest.mark.long
def test_its_environment_runs_topic_to_topic_in_one_cluster(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """Only its names, one cluster on both sides: an exact copy, the group and the clients called as
    it calls them, metrics where it has them.
    """
    cluster, copy, port = clusters.destination, f"{topic}-copy", free_port()
    cluster.create(topic, 2)
    cluster.write(topic, make_records(range(1000), 2))
    start(
        topic,
        environment={
            "INPUT_TOPIC": topic,
            "OUTPUT_TOPIC": copy,
            "INPUT_BROKERS": cluster.address,
            "OUTPUT_BROKERS": cluster.address,
            "CLIENT_ID": "mirror",
            "CONSUMER_GROUP": f"{topic}_ktm",
            "NEWEST_OFFSET": "false",
            "MAX_PUBLISH": "1000",
            "PROM_SERVER_ADDR": f"127.0.0.1:{port}",
        },
    )
    until(
        lambda: cluster.partitions(copy) and cluster.count_offsets(copy) >= 1000,
        "all is written",
        COPY_S,
    )
    until(
        lambda: not Clusters(cluster, cluster).differences(topic, copy), "the copy is exact", COPY_S
    )
    until(
        lambda: list_clients(cluster, f"{topic}_ktm") == ["mirror-deduplicator-0"],
        "the group has one member, of this name",
    )
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=ANSWER_S) as answer:
        assert b"reo_records_out_total" in answer.read()
    with pytest.raises(urllib.error.URLError):  # another address of this host
        urllib.request.urlopen(f"http://127.0.0.2:{port}/metrics", timeout=ANSWER_S)
