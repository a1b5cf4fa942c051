"""Kafka 4.3 loses the markers of a transaction that ends while one of its partitions has no leader
(KAFKA-20734): the coordinator takes the partition for deleted, and completes the transaction.

The records stay undecided; what the same producer does next decides them. reo can only name the
loss. These tests are here to say when Kafka no longer does it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from common.errors import DestinationTruncated
from common.frontier import Frontier
from common.kafka.clients import create_reader
from common.kafka.visible_records import read_visible
from common.routes import TopicPartition
from common.settings import load
from deduplicator.frontiers.frontier_check import check_destination
from tests.harness.kafka import START_S, Clusters, until
from tests.harness.service import build_environment
from tools.demo.broker import Broker
from tools.faults.testbed import ThreeBrokers, start_clusters

pytestmark = pytest.mark.long
TOPIC = "lost-markers"
TP = TopicPartition(TOPIC, 0)
REQUEST_S = 30.0


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[Clusters]:
    """With a destination of three brokers."""
    with start_clusters(tmp_path, "three") as started:
        yield started


def find_leader(broker: Broker) -> int | None:
    """Which broker leads the partition, as this one knows; -1 for none, None when it does not know
    the partition yet.
    """
    admin = AdminClient({"bootstrap.servers": broker.address})
    partitions = admin.list_topics(TOPIC, timeout=REQUEST_S).topics[TOPIC].partitions
    return partitions[0].leader if partitions else None


def commit_record(producer: Producer, value: bytes) -> None:
    """A transaction of one record."""
    producer.begin_transaction()
    producer.produce(TOPIC, value, partition=0)
    producer.commit_transaction(REQUEST_S)


def restart_without_its_markers(brokers: list[Broker], producer: Producer) -> None:
    """The only broker that has the partition is down while a transaction commits, and starts
    again.
    """
    *others, broker = brokers
    number, admin = len(brokers), AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[[number]])])[TOPIC].result(
        REQUEST_S
    )
    until(lambda: find_leader(broker) == number, "the partition has its leader", START_S)
    commit_record(producer, b"first")
    producer.begin_transaction()
    producer.produce(TOPIC, b"lost", partition=0)
    assert producer.flush(REQUEST_S) == 0
    broker.kill()
    until(
        lambda: {find_leader(other) for other in others} == {-1},
        "the others know that the partition has no leader",
        START_S,
    )
    producer.commit_transaction(REQUEST_S)
    broker.start().wait()
    until(lambda: find_leader(broker) == number, "the partition has its leader again", START_S)


def test_a_committed_record_is_lost_and_found_missing(clusters: Clusters, topic: str) -> None:
    """The record is committed, and then aborted by the next transaction of its producer. The check
    at the start names it, although a record that came after it is there.
    """
    three = clusters.destination.broker
    assert isinstance(three, ThreeBrokers)
    address = {"bootstrap.servers": three.address}
    producers = [Producer(address | {"transactional.id": name}) for name in ("one", "two")]
    for producer in producers:
        producer.init_transactions(REQUEST_S)
    restart_without_its_markers(three.brokers, producers[0])
    commit_record(producers[1], b"after it")
    producers[0].begin_transaction()
    producers[0].produce(TOPIC, b"aborted", partition=0)
    assert producers[0].flush(REQUEST_S) == 0
    producers[0].abort_transaction(REQUEST_S)
    settings = load(build_environment(clusters, topic, {}))
    reader = create_reader(settings.destination_cluster, settings)
    try:
        values = [
            (message.offset(), message.value())
            for message in read_visible(reader, {TP: 0}, REQUEST_S, {TP: 7})
        ]
        assert values == [(0, b"first"), (3, b"after it")], "KAFKA-20734: no marker at offset 3"
        frontier = Frontier(2, 1, "1d" * 8, 1, "id", 2, 1, is_known_written=True)
        with pytest.raises(DestinationTruncated, match="a record at offset 2, where no record"):
            check_destination(reader, {TP: frontier}, {TP: 0}, {TP: 7}, frozenset())
    finally:
        reader.close()
