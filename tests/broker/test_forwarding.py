"""The compiled path on a real broker: what it writes is what Python writes, and the service copies
exactly with and without it.
"""

from __future__ import annotations

import itertools

import pytest
from confluent_kafka import Producer

from common.envelope import OFFSET_MAX, Head, encode
from common.routes import TopicPartition
from deduplicator.compiled_path import forward
from tests.conftest import Start
from tests.harness.envelopes import IDENTITY
from tests.harness.judge import Record
from tests.harness.kafka import Clusters, make_records, until
from tests.harness.recovery import add_source_offsets
from tests.harness.stage_one import (
    build_record,
    wait_for_frontiers,
    wrap_records,
    write_intermediate,
)

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
