"""A broker with an IPv6 address, on a host that has both kinds."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.conftest import Start
from tests.harness.kafka import ROOT, UNFENCED, Cluster, Clusters, make_records
from tools.demo.broker import Broker, free_port


@pytest.mark.long
def test_a_destination_at_an_ipv6_address(
    clusters: Clusters, topic: str, start: Start, tmp_path: Path
) -> None:
    """Both stages reach it: librdkafka's clients, and those of stage one's JVM. (The test asks the
    same broker at its other listener.)
    """
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this host has no IPv6")
    broker, address = Broker(tmp_path / "broker", ROOT / "jars" / "broker"), f"[::1]:{free_port()}"
    listeners = f"PLAINTEXT://{broker.address},V6://{address}"
    broker.settings = UNFENCED | {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{broker.controller_port}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,V6:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
    }
    clusters.source.create(topic, 1)
    clusters.source.write(topic, make_records(range(100), 1))
    try:
        destination = Cluster(broker.start().wait())
        service = start(topic, destination_bootstrap_servers=address)
        Clusters(clusters.source, destination).wait_for_copy(topic, 100)
        service.stop()
    finally:
        broker.kill()
