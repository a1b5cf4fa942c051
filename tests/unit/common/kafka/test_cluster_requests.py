"""Why a cluster does not answer: found out once per address, and told from an outage
(`common.kafka.cluster_requests`); from outside: `tests/e2e/test_unreachable.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException, ThrottleEvent

from common import clock
from common.errors import AccessRefused, ClusterUnreachable, ReoError
from common.kafka import clients as kafka_clients
from common.kafka import cluster_requests
from common.kafka.client_errors import note_error, note_throttling
from common.settings import load
from common.settings.clusters import Cluster
from tests.unit.common.settings.test_settings import GOOD


@pytest.fixture(autouse=True)
def _new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """In which no cluster has answered yet."""
    monkeypatch.setattr(cluster_requests, "_answered", set())
    monkeypatch.setattr(cluster_requests, "_tried_tls", set())


class Client:
    """Answers a Metadata request, unless `report` raises."""

    report: Callable[[], None] | None = None

    def __init__(self) -> None:
        self.timeouts_s: list[float] = []

    def list_topics(self, _: str, timeout_s: float) -> None:
        """A Metadata request."""
        self.timeouts_s.append(timeout_s)
        if self.report:
            self.report()

    def poll(self, _: float) -> None:
        """Nothing is queued: the errors are noted at once."""


def build_cluster(**settings: str) -> Cluster:
    """A source cluster."""
    return load(
        GOOD | {f"REO_SOURCE_{name.upper()}": text for name, text in settings.items()}
    ).source_cluster


def raise_noting(cluster: Cluster, code: int, text: str) -> Callable[[], None]:
    """What a client does of which each connection fails in this way."""

    def fail() -> None:
        note_error(cluster, KafkaError(code, text))
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    return fail


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
    silent, was_there = (
        Cluster("source", address, load(GOOD).source.security)
        for address in ("silent:1", "was-there:1")
    )

    def raise_timeout(*_: object) -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    client = Client()
    assert cluster_requests.ask_cluster(was_there, client, 0, lambda _: "an answer") == "an answer"
    client.report = raise_timeout
    for cluster in (silent, was_there, silent):
        with pytest.raises(ClusterUnreachable, match=cluster.bootstrap_servers):
            cluster_requests.ask_cluster(cluster, client, 0, raise_timeout)
    assert asked == ["silent:1"]


def test_a_proxy_before_brokers_that_are_away_does_not_refuse_tls() -> None:
    """It accepts connections and closes them, which the client reports as a failed handshake. At an
    address that has answered before that is an outage; elsewhere it can be a plain-text listener.
    """
    cluster = Cluster("source", "proxy:1", load(GOOD).source.security)
    client = Client()

    def disconnect(*_: object) -> None:
        cluster.handshake_error = (
            "ssl://proxy:1/bootstrap: SSL handshake failed: Disconnected: connecting to a PLAINTEXT"
            " broker listener?"
        )
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    client.report = disconnect
    with pytest.raises(AccessRefused, match="its listener does not speak TLS"):
        cluster_requests.ask_cluster(cluster, client, 0, disconnect)
    client.report = None
    assert cluster_requests.ask_cluster(cluster, client, 0, lambda _: "an answer") == "an answer"
    with pytest.raises(ClusterUnreachable, match=r"cannot be reached any more: .*Disconnected"):
        cluster_requests.ask_cluster(cluster, client, 0, disconnect)


@pytest.mark.parametrize(
    ("code", "text", "requests"),
    [
        (KafkaError._AUTHENTICATION, "SASL authentication error: Authentication failed", 1),
        (
            KafkaError._SSL,
            "ssl://b:1/bootstrap: SSL handshake failed: certificate verify failed",
            1,
        ),
        (KafkaError._AUTHENTICATION, "SASL authentication error: it failed: Local: Timed out", 3),
        (KafkaError._SSL, "error:0A000126:SSL routines::unexpected eof while reading", 3),
        (KafkaError._AUTHENTICATION, "Failed to acquire SASL OAUTHBEARER token: HTTP 503", 3),
        (KafkaError._TRANSPORT, "b:1/bootstrap: Connect to ipv4#b:1 failed: Connection refused", 3),
    ],
)
def test_only_a_final_refusal_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    code: int,
    text: str,
    requests: int,
) -> None:
    """Each request waits longer than the one before it, and a line before the next one says what
    the cluster is waited for.
    """
    now = [0.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    monkeypatch.setattr(clock, "sleep", lambda _: None)
    cluster, client = build_cluster(), Client()
    fail = raise_noting(cluster, code, text)

    def wait_and_fail() -> None:
        now[0] += client.timeouts_s[-1]
        fail()

    client.report = wait_and_fail
    with pytest.raises(ReoError, match=re.escape(text)):
        cluster_requests.ask_cluster(cluster, client, 5, lambda _: None)
    assert client.timeouts_s == [1.0, 2.0, 2.0][:requests]
    assert [text in line for line in caplog.messages] == [True] * (requests - 1)
    if requests > 1:
        assert "up to 4 s more" in caplog.messages[0]


def test_an_address_that_a_broker_names_is_told_from_the_settings() -> None:
    """`bootstrap.servers` is right where the cluster has answered: then its broker's
    `advertised.listeners` is what to correct. Another address of the settings may be away, too.
    """
    cluster, client = build_cluster(bootstrap_servers="a:1,b:1"), Client()
    note_error(
        cluster,
        KafkaError(KafkaError._RESOLVE, "kafka:9092/3: Failed to resolve 'kafka:9092': unknown"),
    )
    kept = cluster.connection_error
    fail = raise_noting(cluster, KafkaError._TRANSPORT, "b:1/bootstrap: Connection refused")

    def fail_after_both() -> None:
        cluster.connection_error = kept
        fail()

    client.report = fail_after_both
    with pytest.raises(
        ClusterUnreachable,
        match=r"at a:1,b:1 names kafka:9092 as the address of its broker 3, .*advertised\.",
    ):
        cluster_requests.ask_cluster(cluster, client, 0, lambda _: None)


@pytest.mark.parametrize(
    ("protocol", "advice"), [("SSL", "=PLAINTEXT"), ("SASL_SSL", "=SASL_PLAINTEXT")]
)
def test_the_other_protocol_is_the_one_with_the_same_sasl(protocol: str, advice: str) -> None:
    """TLS where the listener has none: whether it asks for a password is another question."""
    sasl = {"sasl_mechanism": "PLAIN", "sasl_username": "u", "sasl_password": "p"}
    cluster = build_cluster(
        security_protocol=protocol, **(sasl if protocol.startswith("SASL") else {})
    )
    client = Client()
    client.report = raise_noting(cluster, KafkaError._SSL, "wrong version number")
    with pytest.raises(AccessRefused, match=f"or source.security_protocol{advice}"):
        cluster_requests.ask_cluster(cluster, client, 0, lambda _: None)


def test_a_client_over_its_quota_waits_as_long_as_it_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its next request would not be read. The wait is said, and is not repeated."""
    slept: list[float] = []
    monkeypatch.setattr(clock, "sleep", slept.append)
    cluster = build_cluster()
    client = SimpleNamespace(
        poll=lambda _: note_throttling(cluster, ThrottleEvent("b", 1, 42.0)) if not slept else None
    )
    for _ in range(2):
        assert (
            cluster_requests.ask_for_change(cluster, client, "creating", 1, lambda: "yes") == "yes"
        )
    assert slept == [42.0, 0.0]
    (line,) = caplog.messages
    assert "throttles this client for 42 s" in line
    assert "controller_mutation_rate" in line
