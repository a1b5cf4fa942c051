"""The first records of a destination partition, on a real broker: they are delivered before the
offsets of their transaction are sent.

A worker is perhaps frozen between the two while the intermediate topic is deleted, and the offsets
of the open transaction with it. Another worker, which gets the partition, has no frontier to find
and nothing to wait for; the records are what it sees.
"""

from __future__ import annotations

from functools import partial
from threading import Thread
from typing import Any
from unittest.mock import Mock

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition

from common.liveness import Liveness
from common.routes import TopicPartition
from deduplicator.destination import UNCOUNTED
from deduplicator.kafka_destination import KafkaDestination
from deduplicator.transactions.producer_pair import ProducerPair
from deduplicator.transactions.transactional_producer import TransactionalProducer
from tests.harness.kafka import Cluster, until
from tests.harness.stage_two import describe_config
from tools.faults.proxy import Proxy

TIMEOUT_S = 60.0
RECORD = (b"key", b"value", None, 1_700_000_000_000)


def make_producer(proxy: Proxy, liveness: Liveness, name: str) -> TransactionalProducer:
    """Through the proxy."""
    options = {
        "bootstrap.servers": proxy.address,
        "transactional.id": name,
        "client.id": name,
        "linger.ms": 0,
    }
    return TransactionalProducer(partial(Producer, options), TIMEOUT_S, liveness)


def test_offsets_wait_for_the_first_records(proxied: tuple[Cluster, Proxy], topic: str) -> None:
    """The request with the record is held. No request with offsets is sent meanwhile, and the
    worker says that it waits; in the next transaction the offsets do not wait.
    """
    (cluster, proxy), liveness = proxied, Liveness("deduplicator", 0)
    cluster.create(topic, 1)
    group = Consumer({"bootstrap.servers": cluster.address, "group.id": topic, "log_level": 0})
    pair = ProducerPair(
        *(make_producer(proxy, liveness, f"{topic}-{letter}") for letter in ("a", "b"))
    )
    destination = KafkaDestination(pair, Mock(), describe_config)
    destination.resolve_in_doubt()

    source = TopicPartition(topic, 0)

    def write_and_send_offsets(following: int) -> None:
        offsets: list[Any] = [ClientTopicPartition(topic, 0, following)]
        destination.begin()
        destination.write(TopicPartition(topic, 0), [RECORD], source, (), UNCOUNTED)
        destination.send_offsets(offsets, group.consumer_group_metadata())

    for number in range(2):
        produce = proxy.add_rule("hold", "Produce", client_id=topic)
        requests_before = proxy.request_counts["AddOffsetsToTxn"]
        thread = Thread(target=write_and_send_offsets, args=(number + 1,))
        liveness.reason = None
        thread.start()
        assert produce.matched_event.wait(TIMEOUT_S)
        until(
            lambda before=requests_before: (
                liveness.reason == "destination" or proxy.request_counts["AddOffsetsToTxn"] > before
            ),
            "the worker waits, or sends offsets",
            TIMEOUT_S,
        )
        assert proxy.request_counts["AddOffsetsToTxn"] - requests_before == number
        produce.release()
        thread.join(TIMEOUT_S)
        assert proxy.request_counts["AddOffsetsToTxn"] - requests_before == 1
        destination.start_commit()
        destination.finish_commit()
    group.close()
    destination.close()
    assert [record.value for record in cluster.read(topic)[0]] == [b"value"] * 2
