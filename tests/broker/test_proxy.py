"""The fault proxy, on a real broker with real clients: each fault is shown to have happened, and to
have the consequence that is known of it.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.harness.kafka import Cluster, until
from tools.faults.proxy import Proxy
from tools.faults.proxy_rule import EVERY
from tools.faults.requests import API_KEYS, HEADER, parse_request

HIT_S = 60
PATIENT = {"socket_timeout_ms": 30_000, "request_timeout_ms": 30_000}
"""For a client that nothing is kept from: it sends nothing twice because its broker is slow."""


@pytest.fixture
def cluster(proxied: tuple[Cluster, Proxy], topic: str) -> Cluster:
    """The cluster, with this test's topic of one partition."""
    proxied[0].create(topic, 1)
    return proxied[0]


@pytest.fixture
def proxy(proxied: tuple[Cluster, Proxy]) -> Iterator[Proxy]:
    """The proxy; no fault outlives its test."""
    proxy = proxied[1]
    yield proxy
    proxy.rules.clear()
    proxy.half_open, proxy.delay_s, proxy.bytes_per_s = False, 0, 0


def producer(proxy: Proxy, **options: Any) -> Producer:
    """A producer through the proxy that gives a connection up after a second without an answer."""
    return Producer(
        {
            "bootstrap.servers": proxy.address,
            "log_level": 0,
            "socket.timeout.ms": 1000,
            "request.timeout.ms": 1000,
            "linger.ms": 0,
            "retry.backoff.ms": 50,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 200,
        }
        | {name.replace("_", "."): value for name, value in options.items()}
    )


def transactional(proxy: Proxy, name: str) -> Producer:
    """A transactional producer, initialised."""
    made = producer(
        proxy,
        transactional_id=name,
        transaction_timeout_ms=60_000,
        socket_timeout_ms=30_000,
        client_id=name,
    )
    made.init_transactions(HIT_S)
    return made


def deliver_record(writer: Producer, topic: str, value: bytes = b"record") -> list[object]:
    """Write one record and wait for its report: the error, or None."""
    reports: list[object] = []
    writer.produce(topic, value, partition=0, on_delivery=lambda error, _: reports.append(error))
    writer.flush(HIT_S)
    return reports


def values(cluster: Cluster, topic: str) -> list[bytes | None]:
    """What a `read_committed` reader sees."""
    return [record.value for records in cluster.read(topic).values() for record in records]


def test_a_client_stays_behind_the_proxy(cluster: Cluster, proxy: Proxy, topic: str) -> None:
    """Metadata lead back to the proxy, not past it; requests are counted by name; records
    arrive.
    """
    writer = producer(proxy, client_id="stays", **PATIENT)
    found = writer.list_topics(timeout=HIT_S)
    assert (
        [broker.port for broker in found.brokers.values()] == [proxy.port] != [cluster.broker.port]
    )
    before = proxy.request_counts["Produce"]
    assert deliver_record(writer, topic) == [None]
    assert proxy.request_counts["Produce"] == before + 1
    assert values(cluster, topic) == [b"record"]


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_swallowed_answer_makes_a_duplicate_unless_the_producer_is_idempotent(
    cluster: Cluster, proxy: Proxy, topic: str, idempotent: bool
) -> None:
    """The broker wrote the record, the client does not know and sends it again: there again, or
    recognised by its sequence.
    """
    rule = proxy.add_rule("swallow_answer", "Produce", client_id=topic)
    assert deliver_record(
        producer(proxy, client_id=topic, enable_idempotence=idempotent), topic
    ) == [None]
    assert rule.hits == 1
    assert rule.answered.wait(HIT_S)
    found = values(cluster, topic)
    assert set(found) == {b"record"}
    # one that is not may have sent it more often than twice to a slow broker
    assert (len(found) == 1) == idempotent, found


def test_a_dropped_request_never_arrives(cluster: Cluster, proxy: Proxy, topic: str) -> None:
    """Without retries the client sees a timeout, and the broker has nothing."""
    rule = proxy.add_rule("drop", "Produce", client_id=topic, times=EVERY)
    (error,) = deliver_record(producer(proxy, client_id=topic, retries=0), topic)
    assert error is not None
    assert rule.hits >= 1
    assert not rule.answers
    assert cluster.end_offsets(topic) == {0: 0}


def test_a_held_commit_is_done_when_it_is_released_though_its_client_has_gone(
    cluster: Cluster, proxy: Proxy, topic: str
) -> None:
    """The last stable offset stays below the record until then; other connections pass meanwhile;
    the broker's answer is success.
    """
    writer = transactional(proxy, topic)
    rule = proxy.add_rule("hold", "EndTxn", client_id=topic)
    writer.begin_transaction()
    writer.produce(topic, b"held", partition=0)
    assert writer.flush(HIT_S) == 0
    with pytest.raises(KafkaException, match=r"[Tt]imed out"):
        writer.commit_transaction(5)
    assert rule.matched_event.wait(HIT_S)
    del writer
    assert proxy.cut_all() >= 1
    other = transactional(proxy, f"{topic}-other")
    other.begin_transaction()
    other.produce(topic, b"passes", partition=0)
    other.commit_transaction(HIT_S)
    until(lambda: cluster.end_offsets(topic)[0] >= 3, "both records and one marker are written")
    assert cluster.end_offsets(topic, stable=True) == {0: 0}
    assert not rule.answered.is_set()
    rule.release()
    assert rule.answered.wait(HIT_S)
    assert struct.unpack(">ih", rule.answers[0][:6]) == (0, 0)
    until(
        lambda: cluster.end_offsets(topic, stable=True) == cluster.end_offsets(topic),
        "the transaction is committed",
    )
    assert values(cluster, topic) == [b"held", b"passes"]


def test_a_cut_connection_is_reopened(cluster: Cluster, proxy: Proxy, topic: str) -> None:
    """The second Produce is not forwarded: a client without retries has lost it. One with retries
    connects again and finishes.
    """
    writer, retrying = (
        producer(proxy, client_id=f"{topic}-once", retries=0, **PATIENT),
        producer(proxy, client_id=f"{topic}-again", **PATIENT),
    )
    assert deliver_record(writer, topic, b"1") == [None]
    rule, again = (
        proxy.add_rule("cut", "Produce", client_id=f"{topic}-once"),
        proxy.add_rule("cut", "Produce", client_id=f"{topic}-again", nth=2),
    )
    (error,) = deliver_record(writer, topic, b"lost")
    assert error is not None
    assert rule.hits == 1
    assert cluster.end_offsets(topic) == {0: 1}
    assert deliver_record(retrying, topic, b"2") == [None]
    assert again.hits == 0
    accepted = proxy.accepted
    assert deliver_record(retrying, topic, b"3") == [None]
    assert again.hits == 1
    assert proxy.accepted > accepted
    assert values(cluster, topic) == [b"1", b"2", b"3"]


def test_cutting_all_connections_is_survived(cluster: Cluster, proxy: Proxy, topic: str) -> None:
    """A client that is connected is cut, and writes again through a new connection."""
    writer = producer(proxy, client_id=topic, enable_idempotence=True)
    assert deliver_record(writer, topic, b"1") == [None]
    accepted = proxy.accepted
    assert proxy.cut_all() >= 1
    assert deliver_record(writer, topic, b"2") == [None]
    assert proxy.accepted > accepted
    assert values(cluster, topic) == [b"1", b"2"]


def test_a_half_open_network_accepts_and_says_nothing(
    cluster: Cluster, proxy: Proxy, topic: str
) -> None:
    """An old connection and a new one time out; when it flows again, what waited arrives, once."""
    writer = producer(proxy, client_id=topic, enable_idempotence=True)
    assert deliver_record(writer, topic, b"1") == [None]
    accepted, proxy.half_open = proxy.accepted, True
    reports: list[object] = []
    writer.produce(topic, b"2", partition=0, on_delivery=lambda error, _: reports.append(error))
    with pytest.raises(KafkaException, match=r"[Tt]imed out|transport failure"):
        AdminClient(
            {"bootstrap.servers": proxy.address, "log_level": 0, "socket.timeout.ms": 1000}
        ).list_topics(timeout=1)
    until(lambda: proxy.accepted > accepted, "the new connection is accepted")
    assert (writer.flush(0), reports, cluster.end_offsets(topic)) == (1, [], {0: 1})
    proxy.half_open = False
    assert writer.flush(HIT_S) == 0
    assert reports == [None]
    assert values(cluster, topic) == [b"1", b"2"]


def test_delay_and_width_slow_it_down(cluster: Cluster, proxy: Proxy, topic: str) -> None:
    """A delayed round trip takes at least two delays; a record of 100 kB at 100 kB/s at least its
    second.
    """
    writer = producer(proxy, client_id=topic, **PATIENT)
    assert deliver_record(writer, topic, b"1") == [None]
    for delay_s, bytes_per_s, size, least_s in ((0.2, 0, 1, 0.4), (0, 100_000, 100_000, 1.0)):
        proxy.delay_s, proxy.bytes_per_s = delay_s, bytes_per_s
        begun = time.monotonic()
        assert deliver_record(writer, topic, b"." * size) == [None]
        assert time.monotonic() - begun >= least_s


def test_a_rule_strikes_the_nth_request_of_its_api_and_client(proxy: Proxy) -> None:
    """Counted from when the rule was made; other APIs and other clients do not count; None is any
    API.
    """

    def request(api: str, client_id: str) -> bytes:
        return HEADER.pack(API_KEYS[api], 1, 7, len(client_id)) + client_id.encode() + b"body"

    sent = [
        parse_request(request(api, client))
        for api, client in (
            ("EndTxn", "w-a"),
            ("Produce", "w-a"),
            ("EndTxn", "w-b"),
            ("EndTxn", "w-a"),
            ("EndTxn", "w-a"),
            ("EndTxn", "w-a"),
        )
    ]
    rules = [
        proxy.add_rule("cut", "EndTxn", client_id="a", nth=2),
        proxy.add_rule("cut", "EndTxn", nth=2, times=2),
        proxy.add_rule("cut", nth=6),
        proxy.add_rule("cut", nth=7),
    ]
    assert [[number for number, one in enumerate(sent) if rule.matches(one)] for rule in rules] == [
        [3],
        [2, 3],
        [5],
        [],
    ]
    assert [rule.hits for rule in rules] == [1, 2, 1, 0]
    assert [rule.matched_event.is_set() for rule in rules] == [True, True, True, False]


def test_a_rule_for_no_api_is_refused(proxy: Proxy) -> None:
    """A typing error would be a fault that never happens."""
    with pytest.raises(ValueError, match="EndTransaction"):
        proxy.add_rule("hold", "EndTransaction")
