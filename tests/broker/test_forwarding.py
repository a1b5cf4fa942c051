"""The compiled path on a real broker: what it writes is what Python writes, and the service copies
exactly with and without it.
"""

from __future__ import annotations

import itertools
from functools import partial
from unittest.mock import Mock

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition

from common.envelope import OFFSET_MAX, Head, parse_head
from common.liveness import Liveness
from common.routes import TopicPartition
from deduplicator.compiled_path import forward
from deduplicator.kafka_destination import KafkaDestination
from deduplicator.transactions.producer_pair import ProducerPair
from deduplicator.transactions.transactional_producer import TransactionalProducer
from deduplicator.unwrap import AcceptedEnvelope
from tests.conftest import Start
from tests.harness.copy_judge import Record
from tests.harness.envelopes import IDENTITY
from tests.harness.kafka import Clusters, make_records, until
from tests.harness.recovery import add_source_offsets
from tests.harness.stage_one import (
    build_record,
    wait_for_frontiers,
    wrap_records,
    write_intermediate,
)
from tests.harness.stage_two import describe_config
from tools.envelope_encoder import encode

RECORDS = 3000
QUEUE_SIZE = 50
"""Of the producer, in records: an envelope takes several rounds."""
SHAPES = (
    Record(b"k", b"v", ()),
    Record(None, b"v", ()),
    Record(b"k", None, ()),
    Record(b"", b"", ()),
    Record(None, None, (("a", b"1"), ("a", b"2"), ("", b""))),
    Record(b"\0" * 300, b"\xff" * 70_000, (("null", None), ("empty", b""))),
    Record(b"k", b"v", (("naïve \U0001f600", b"not ASCII"), ("x" * 300, b"\0"))),
)
"""Every shape of a record."""
ODD = [
    SHAPES[number % len(SHAPES)]._replace(timestamp_ms=1_700_000_000_000 - number * number)
    for number in range(140)
]


def forward_all(producer: Producer, tp: TopicPartition, value: bytes, above: int) -> int:
    """As `KafkaDestination.forward` does it, also while the producer's queue is full. Returns how
    often it was.
    """
    for full in itertools.count():
        forwarded = forward(producer, tp, value, above, OFFSET_MAX, None)
        if not forwarded.is_queue_full:
            return full
        above = forwarded.last_source_offset
        producer.poll(0.05)
    raise AssertionError


def test_records_are_written_as_python_writes_them(clusters: Clusters, topic: str) -> None:
    """Key, value, headers and timestamp of every shape, as a consumer reads them; a part of an
    envelope is the records above an offset.
    """
    by_c, by_python = f"{topic}-c", f"{topic}-python"
    for name in (by_c, by_python):
        clusters.destination.create(name, 2)
    value = encode(
        Head(IDENTITY, 1, 0, 9, 9 + len(ODD)),
        [build_record(offset, record) for offset, record in enumerate(ODD, 10)],
    )
    producer = Producer(
        {
            "bootstrap.servers": clusters.destination.address,
            "queue.buffering.max.messages": QUEUE_SIZE,
        }
    )
    full = forward_all(producer, TopicPartition(by_c, 0), value, -1)
    assert full > 0
    forward_all(producer, TopicPartition(by_c, 1), value, 99)
    assert producer.flush(30) == 0
    clusters.destination.write(by_python, [(0, record) for record in ODD])
    clusters.destination.write(by_python, [(1, record) for record in ODD[90:]])
    written = clusters.destination.read(by_c)
    assert written == {0: ODD, 1: ODD[90:]}
    assert written == clusters.destination.read(by_python)


def test_values_stay_until_they_are_sent(clusters: Clusters, topic: str) -> None:
    """The client does not copy them. It sends them when the transaction ends, after the memory of
    each envelope that nobody has kept was used again.
    """
    cluster = clusters.destination
    cluster.create(topic, 1)
    pair = ProducerPair(
        *(
            TransactionalProducer(
                partial(
                    Producer,
                    {
                        "bootstrap.servers": cluster.address,
                        "transactional.id": f"{topic}-{letter}",
                        "linger.ms": 30_000,
                    },
                ),
                60.0,
                Liveness("deduplicator", 0),
            )
            for letter in ("a", "b")
        )
    )
    destination = KafkaDestination(pair, Mock(), describe_config, is_compiled=True)
    destination.resolve_in_doubt()
    destination.begin()
    records = [Record(None, bytes([number]) * 1000, (), number) for number in range(1, 100)]
    for offset, record in enumerate(records):
        value = encode(
            Head(IDENTITY, 1, 0, offset - 1, offset + 1),
            [build_record(offset, record), build_record(offset + 1, record)],
        )
        envelope = AcceptedEnvelope(Mock(), parse_head(value), value, -1)
        destination.forward(TopicPartition(topic, 0), [envelope], None)
        del envelope
        size = len(value)
        del value
        assert [bytes(size) for _ in range(20)]
    group = Consumer({"bootstrap.servers": cluster.address, "group.id": topic, "log_level": 0})
    offsets = [ClientTopicPartition(topic, 0, 0)]
    destination.send_offsets(offsets, group.consumer_group_metadata())
    destination.start_commit()
    destination.finish_commit()
    group.close()
    destination.close()
    assert cluster.read(topic)[0] == [record for record in records for _ in range(2)]


@pytest.mark.parametrize("used", ["yes", "no"])
def test_the_service_says_which_one_it_uses(
    clusters: Clusters, topic: str, start: Start, used: str
) -> None:
    """Both copy exactly; the metric tells them apart."""
    clusters.source.create(topic, 2)
    records = make_records(range(RECORDS), 2)
    records += [(number % 2, record) for number, record in enumerate(ODD)]
    clusters.source.write(topic, records)
    service = start(topic, "deduplicator", deduplicator_compiled=used)
    wait_for_frontiers(service, 2)
    until(
        lambda: service.metric("reo_deduplicator_compiled") == (used == "yes"), "the metric says it"
    )
    write_intermediate(
        clusters, topic, topic, wrap_records(clusters, topic, add_source_offsets(records))
    )
    clusters.wait_for_copy(topic, len(records))
    service.stop()
    assert clusters.differences(topic) == []
