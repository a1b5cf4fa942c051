"""Which requests a copy sends to each cluster: docs/reference.md has them in a table, for clusters
that are no Apache Kafka. Two brokers log every request that they have answered.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.kafka import ROOT, UNFENCED, Cluster, Clusters, make_records, until
from tests.harness.service import Service, build_environment
from tools.demo.broker import Broker

LOG_REQUESTS = ("-Dorg.slf4j.simpleLogger.log.kafka.request.logger=debug",)
"""Of slf4j-simple: Kafka's own request log (`RequestChannel`)."""
REQUEST = re.compile(r'"clientId":"reo-[^"]*","requestApiKeyName":"(\w+)"')
ROW = re.compile(r"^\| `(\w+)` \| (\w*) ?\| (\w*) \|", re.MULTILINE)


@pytest.fixture
def logging_clusters(tmp_path: Path) -> Iterator[Clusters]:
    """Of two brokers that log requests."""
    brokers = [
        Broker(
            tmp_path / side,
            ROOT / "jars" / "broker",
            settings=UNFENCED,
            java_options=LOG_REQUESTS,
        )
        for side in ("source", "destination")
    ]
    try:
        for broker in brokers:
            broker.start()
        yield Clusters(*(Cluster(broker.wait()) for broker in brokers))
    finally:
        for broker in brokers:
            broker.kill()


def list_requests(cluster: Cluster) -> set[str]:
    """Those that reo's clients sent, in lower case."""
    log = (cluster.broker.folder / "broker.log").read_text()
    return {name.replace("_", "").lower() for name in REQUEST.findall(log)}


def test_the_table_has_the_requests_of_a_copy(
    logging_clusters: Clusters, topic: str, tmp_path: Path
) -> None:
    """Each that is marked `yes` is sent by a service that creates its topics, copies and deletes
    what is copied, and no other one than these and those that are marked `can`.
    """
    clusters = logging_clusters
    rows = ROW.findall((ROOT / "docs" / "reference.md").read_text())
    clusters.source.create(topic, 2)
    clusters.source.write(topic, make_records(range(100), 2))
    service = Service(tmp_path / "service", build_environment(clusters, topic, {}), ()).start()
    try:
        clusters.wait_for_copy(topic, 100)
        until(lambda: "deleterecords" in list_requests(clusters.destination), "copied is deleted")
    finally:
        service.kill_all()
    for side, cluster in enumerate((clusters.source, clusters.destination)):
        always = {row[0].lower() for row in rows if row[1 + side] == "yes"}
        possible = {row[0].lower() for row in rows if row[1 + side] == "can"}
        assert list_requests(cluster) - possible == always
