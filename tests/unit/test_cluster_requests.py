"""Why a cluster does not answer: found out once per address, and told from an outage
(`common.kafka.cluster_requests`); from outside: `tests/e2e/test_unreachable.py`.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from common.errors import AccessRefused, ClusterUnreachable
from common.kafka import clients as kafka_clients
from common.kafka import cluster_requests
from common.settings import load
from common.settings.clusters import Cluster
from tests.unit.test_settings import GOOD


def test_a_silent_address_is_asked_once_whether_it_speaks_tls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who stands still is waited for, and the question takes seconds; who has answered before is
    not asked at all.
    """
    asked: list[str] = []
    monkeypatch.setattr(
        kafka_clients,
        "_factories",
        kafka_clients._factories._replace(
            has_tls_listener=lambda address: bool(asked.append(address))
        ),
    )
    monkeypatch.setattr(cluster_requests, "_known_addresses", set())
    silent, was_there = (
        Cluster("source", address, load(GOOD).source.security)
        for address in ("silent:1", "was-there:1")
    )

    def raise_timeout() -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    client = SimpleNamespace(poll=lambda _: None)
    assert cluster_requests.ask_cluster(was_there, client, 0, lambda: "an answer") == "an answer"
    for cluster in (silent, was_there, silent):
        with pytest.raises(ClusterUnreachable, match=cluster.bootstrap_servers):
            cluster_requests.ask_cluster(cluster, client, 0, raise_timeout)
    assert asked == ["silent:1"]


def test_a_proxy_before_brokers_that_are_away_does_not_refuse_tls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It accepts connections and closes them, which the client reports as a failed handshake. At an
    address that has answered before that is an outage; elsewhere it can be a plain-text listener.
    """
    monkeypatch.setattr(cluster_requests, "_known_addresses", set())
    cluster = Cluster("source", "proxy:1", load(GOOD).source.security)
    client = SimpleNamespace(poll=lambda _: None)

    def disconnect() -> None:
        cluster.handshake_error = (
            "ssl://proxy:1/bootstrap: SSL handshake failed: Disconnected: connecting to a PLAINTEXT"
            " broker listener?"
        )
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    with pytest.raises(AccessRefused, match="its listener does not speak TLS"):
        cluster_requests.ask_cluster(cluster, client, 0, disconnect)
    assert cluster_requests.ask_cluster(cluster, client, 0, lambda: "an answer") == "an answer"
    with pytest.raises(ClusterUnreachable, match=r"cannot be reached any more: .*Disconnected"):
        cluster_requests.ask_cluster(cluster, client, 0, disconnect)
