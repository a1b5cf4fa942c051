"""A cluster whose only broker is not registered for a moment, as after a pause: its answers name no
broker. The broker of these tests is unregistered for half a second out of three: a client that asks
all the time sees it, and most new clients are answered. It also creates missing topics that a
client asks for, which is Kafka's default.

The two tests that wait for a lost client are long ones: a race of two threads inside librdkafka
loses it, in about one of ten times that the broker is away. So four clients ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from confluent_kafka import KafkaException

from common.errors import ClusterUnreachable, StageFailed
from common.kafka import client_watch, clients
from common.kafka.cluster_metadata import MetadataClient, read_brokers, read_metadata
from common.kafka.cluster_requests import ask_cluster
from common.settings import Settings, load
from tests.conftest import make_topic_name
from tests.harness.commands import run_python
from tests.harness.kafka import ROOT, Cluster, until
from tools.demo.broker import Broker

ASK = """
import os, sys, time
from confluent_kafka import KafkaException
from common.kafka import topics
from common.kafka.cluster_metadata import read_metadata
from common.kafka.clients import create_admin_client
from common.settings import load

settings = load(os.environ)
seen = set()
client = None
while not {("brokers", 0), ("brokers", 1), ("identity", True)} <= seen:
    client = client or create_admin_client(settings.source_cluster, settings)
    for name, ask in (
        ("brokers", lambda: len(read_metadata(client, 2).brokers)),
        ("identity", lambda: topics.describe(client, ["missing"], 2) == {}),
    ):
        try:
            seen.add((name, ask()))
        except KafkaException as failed:
            seen.add((name, failed.args[0].name()))
            client = None  # it may have lost the brokers for good
            break
    print(sorted(seen, key=str), flush=True)
    time.sleep(0.05)
"""

LOSE_A_CLIENT = """
import os, threading, time
from confluent_kafka import KafkaException
from common.kafka import client_watch
from common.kafka.clients import create_admin_client
from common.settings import load

settings = load(os.environ)
client_watch.CHECK_INTERVAL_S = 1.0
client_watch.start()

def ask_always():
    client = create_admin_client(settings.source_cluster, settings)
    while True:
        try:
            client.list_topics("missing", 1)
        except KafkaException:
            pass
        time.sleep(0.1)

for _ in range(4):
    threading.Thread(target=ask_always, daemon=True).start()
threading.Event().wait()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker whose session ends after 2.5 seconds and whose heartbeats come every three."""
    broker = Broker(
        tmp_path_factory.mktemp("unregistered") / "broker",
        ROOT / "jars" / "broker",
        settings={
            "broker.session.timeout.ms": "2500",
            "broker.heartbeat.interval.ms": "3000",
            "auto.create.topics.enable": "true",
        },
    )
    try:
        yield Cluster(broker.start().wait())
    finally:
        broker.kill()


def make_environment(cluster: Cluster) -> dict[str, str]:
    """Settings with this cluster on both sides."""
    return {
        "REO_SOURCE_BOOTSTRAP_SERVERS": cluster.broker.address,
        "REO_DESTINATION_BOOTSTRAP_SERVERS": cluster.broker.address,
        "REO_SOURCE_TOPIC": "missing",
        "REO_CONNECT_TIMEOUT_S": "30",
    }


@pytest.fixture
def settings(cluster: Cluster) -> Settings:
    """See `make_environment`."""
    return load(make_environment(cluster))


def test_a_cluster_without_brokers_is_described(cluster: Cluster) -> None:
    """In a process of its own, which a failed assertion of the client would end: the cluster and
    its topics, with and without a broker in the answer.
    """
    ended = run_python(ASK, environment=make_environment(cluster))
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.long
def test_a_process_with_a_lost_client_ends(cluster: Cluster) -> None:
    """A client that an answer without brokers has left without any: the process ends so that it is
    started again, and says why.
    """
    ended = run_python(LOSE_A_CLIENT, environment=make_environment(cluster))
    assert ended.returncode == StageFailed.exit_code, ended.stdout + ended.stderr
    assert "librdkafka has lost the brokers" in ended.stderr


@pytest.mark.long
def test_only_the_lost_client_is_found(cluster: Cluster, settings: Settings) -> None:
    """Not one that gets an answer, or was closed. A client counts as lost as it does for the
    service, after two checks in a row: a busy machine can answer late once.
    """
    source = settings.source_cluster
    asking = [clients.create_admin_client(source, settings) for _ in range(5)]
    reader = clients.create_reader(source, settings)
    reader.close()
    new: list[MetadataClient] = []

    def find_lost_clients() -> set[MetadataClient]:
        new[:] = [clients.create_admin_client(source, settings)]
        found = client_watch.find_lost_clients() & client_watch.find_lost_clients()
        assert reader not in found
        return found

    lost = until(find_lost_clients, "a client is lost")
    assert lost <= {*asking, *new}
    for client in lost:
        with pytest.raises(KafkaException):
            client.list_topics("missing", 1)


def test_no_client_creates_the_topic_it_asks_for(cluster: Cluster, settings: Settings) -> None:
    """None of the service's clients; a client with the defaults does."""
    ours, theirs = (make_topic_name(name) for name in ("ours", "theirs"))

    def ask(client: object, topic: str) -> bool:
        try:
            return bool(read_metadata(client, 2, topic).cluster_id)
        except KafkaException:
            return False

    def ask_new(create: Callable[[], object]) -> bool:
        return ask(create(), ours)

    source = settings.source_cluster
    for create in (
        lambda: clients.create_admin_client(source, settings),
        lambda: clients.create_reader(source, settings),
        lambda: clients.create_idempotent_producer(source, settings, "test"),
        lambda: clients.create_stage_two_consumer(settings, 0),
    ):
        until(partial(ask_new, create), "a client is answered")

    def list_topics() -> set[str]:
        ask(cluster.admin, theirs)
        try:
            names = set(cluster.admin.list_topics(timeout=2).topics)
        except KafkaException:
            return set()
        return names if theirs in names else set()

    assert ours not in until(list_topics, "a client with the defaults creates its topic")


def test_the_error_says_what_is_missing(settings: Settings) -> None:
    """ClusterUnreachable, at once, with the client's words."""

    def ask() -> str:
        client = clients.create_admin_client(settings.source_cluster, settings)
        try:
            ask_cluster(settings.source_cluster, client, 0, lambda _: read_brokers(client, 2))
        except ClusterUnreachable as unreachable:
            return str(unreachable)
        return ""

    until(lambda: "no broker is registered" in ask(), "it says so")
