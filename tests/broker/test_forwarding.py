"""The compiled path on a real broker: messages and records are the client's own, whatever is
assigned, and the service copies exactly with and without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition

from common.frontier import RuleState
from common.records import get_compared_content, list_headers
from common.routes import TopicPartition
from deduplicator.unwrap import split_by_partition
from tests.conftest import Start
from tests.harness.judge import Record
from tests.harness.kafka import Clusters, make_records, until
from tests.harness.queue_reader import Reader, fill_topic
from tests.harness.recovery import add_source_offsets
from tests.harness.stage_one import wait_for_frontiers, wrap_records, write_intermediate
from tests.harness.task_attempts import IDENTITY

RECORDS = 3000
PAUSED_S = 1.0
"""Nothing has to come in this time; a fetch is answered after 50 ms."""

ODD = [
    Record(b"k", b"v", ()),
    Record(None, b"v", ()),
    Record(b"k", None, ()),
    Record(b"", b"", ()),
    Record(None, None, (("a", b"1"), ("a", b"2"), ("", b""))),
    Record(b"\0" * 300, b"\xff" * 70_000, (("null", None), ("empty", b""))),
    Record(b"k", b"v", (("naïve", b"not ASCII"),)),
]
"""Every shape of a record; the last one is Python's."""


@pytest.fixture
def reader(clusters: Clusters) -> Iterator[Reader]:
    """Closed at the end."""
    made = Reader(clusters)
    yield made
    made.close()


def test_messages_are_what_the_client_hands_out(
    clusters: Clusters, topic: str, reader: Reader
) -> None:
    """For Python, a message of the queue is the client's own, in everything that is asked of
    one.
    """
    fill_topic(clusters, topic, 1, [(0, record) for record in ODD])
    reader.assign((TopicPartition(topic, 0), 0))
    ours = [
        message
        for taken in reader.take(len(ODD))
        for _, run in taken.split_by_partition()
        for message in run.list_messages()
    ]
    plain_reader = Consumer(
        {
            "bootstrap.servers": clusters.destination.address,
            "group.id": "plain",
            "auto.offset.reset": "error",
        }
    )
    plain_reader.assign([ClientTopicPartition(topic, 0, 0)])
    theirs = plain_reader.consume(len(ODD), 30)
    plain_reader.close()
    assert [get_compared_content(message) for message in ours] == [
        get_compared_content(cast(Any, message)) for message in theirs
    ]
    assert [
        (m.topic(), m.partition(), m.offset(), m.timestamp(), m.leader_epoch(), m.error())
        for m in ours
    ] == [
        (m.topic(), m.partition(), m.offset(), m.timestamp(), m.leader_epoch(), m.error())
        for m in theirs
    ]
    assert all(m.leader_epoch() is not None for m in ours), "this broker reports it"
    assert list_headers(ours) == list_headers(cast(Any, theirs))


def test_records_are_forwarded_as_python_would_write_them(
    clusters: Clusters, topic: str, reader: Reader
) -> None:
    """From two partitions to a producer, without a Python object for any of them: key, value,
    headers and timestamp are the source's.
    """
    records = [(number % 2, ODD[number % (len(ODD) - 1)]) for number in range(500)]
    fill_topic(clusters, topic, 2, records)
    clusters.destination.create(f"{topic}-copy", 2)
    reader.assign((TopicPartition(topic, 0), 0), (TopicPartition(topic, 1), 0))
    producer = Producer({"bootstrap.servers": clusters.destination.address, "linger.ms": 5})
    states = {0: RuleState(-1, 1, None), 1: RuleState(-1, 1, None)}
    for taken in reader.take(500):
        for tp, run in taken.split_by_partition():
            decided = run.scan(states[tp.partition], IDENTITY)
            assert decided is not None
            states[tp.partition] = decided.state
            assert decided.records.forward(
                producer, TopicPartition(f"{topic}-copy", tp.partition), 0, len(decided.records)
            ) == len(decided.records)
            assert list(decided.records) == split_by_partition(run.list_messages())[
                tp
            ].list_records(range(len(run)), None)
    assert producer.flush(30) == 0
    copied = clusters.destination.read(f"{topic}-copy")
    for partition in range(2):
        wanted = [record for there, record in records if there == partition]
        assert [(found.key, found.value, found.headers) for found in copied[partition]] == [
            (record.key, record.value, record.headers) for record in wanted
        ]
        assert [found.timestamp_ms for found in copied[partition]] == [
            1_700_000_000_000 + number for number in range(len(wanted))
        ]


def test_a_full_producer_says_how_far_it_got(
    clusters: Clusters, topic: str, reader: Reader
) -> None:
    """It takes what it has room for, and goes on from there; what it refuses is an error."""
    fill_topic(clusters, topic, 1, [(0, Record(b"k", b"v", (("a", b"b"),)))] * 50)
    reader.assign((TopicPartition(topic, 0), 0))
    silent = Producer(
        {
            "bootstrap.servers": "127.0.0.1:1",
            "queue.buffering.max.messages": 20,
            "message.timeout.ms": 1000,
            "log_level": 0,
        }
    )
    small = Producer(
        {"bootstrap.servers": "127.0.0.1:1", "message.max.bytes": 1000, "log_level": 0}
    )
    taken = next(found for found in reader.take(50) if len(found))
    ((_, run),) = taken.split_by_partition()
    decided = run.scan(RuleState(-1, 1, None), IDENTITY)
    assert decided is not None
    assert decided.records.forward(silent, TopicPartition("t", 0), 0, len(run)) == min(20, len(run))
    assert decided.records.forward(silent, TopicPartition("t", 0), 20, len(run)) == 0
    silent.purge()
    silent.flush(10)
    fill_topic(clusters, f"{topic}-large", 1, [(0, Record(b"k", b"v" * 2000, ()))])
    reader.assign((TopicPartition(f"{topic}-large", 0), 0))
    large = next(found for found in reader.take(1) if len(found))
    ((_, run),) = large.split_by_partition()
    decided = run.scan(RuleState(-1, 1, None), IDENTITY)
    assert decided is not None
    with pytest.raises(Exception, match="was not accepted") as refused:
        decided.records.forward(small, TopicPartition("t", 0), 0, 1)
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_after_a_new_assignment_nothing_old_comes(
    clusters: Clusters, topic: str, reader: Reader
) -> None:
    """What was fetched before is left out by librdkafka (its versions), and the partitions go on
    coming through our queue.
    """
    fill_topic(
        clusters,
        topic,
        2,
        [(number % 2, Record(b"k", b"%d" % number, ())) for number in range(400)],
    )
    here, there = TopicPartition(topic, 0), TopicPartition(topic, 1)
    offsets = reader.take_offsets
    reader.assign((here, 0), (there, 0))
    assert set(offsets(120)) <= {here, there}
    reader.assign((here, 10), (there, 150))
    found = offsets(190 + 50)
    assert (found[here], found[there]) == (list(range(10, 200)), list(range(150, 200)))
    again = [ClientTopicPartition(*here, 20), ClientTopicPartition(*there, 160)]
    reader.consumer.incremental_unassign(again)
    reader.consumer.incremental_assign(again)
    found = offsets(180 + 40)
    assert (found[here], found[there]) == (list(range(20, 200)), list(range(160, 200)))
    reader.consumer.unassign()
    reader.assign((there, 20))
    assert offsets(180) == {there: list(range(20, 200))}
    reader.assign((here, 190), (there, 199))
    assert offsets(11) == {here: list(range(190, 200)), there: [199]}
    for begin in (100, 50, 199):  # each one replaces the one before it
        reader.assign((here, begin), (there, begin))
        assert offsets(2 * (200 - begin)) == {
            here: list(range(begin, 200)),
            there: list(range(begin, 200)),
        }


def test_seek_pause_and_revocation_hold_for_what_is_in_the_queue(
    clusters: Clusters, topic: str, reader: Reader
) -> None:
    """What an older fetch has put into the queue is left out (librdkafka numbers the versions of a
    partition's fetches): after a seek, while the partition is paused, after it was revoked. What
    was left out during a pause comes after it; the other partition never stops.
    """
    fill_topic(
        clusters,
        topic,
        2,
        [(number % 2, Record(b"k", b"%d" % number, ())) for number in range(400)],
    )
    here, there = TopicPartition(topic, 0), TopicPartition(topic, 1)
    reader.assign((here, 0), (there, 0))
    taken_first = reader.take_offsets(120)  # the rest is in the queue
    reader.consumer.seek(ClientTopicPartition(*here, 30))
    found = reader.take_offsets(170 + 200 - len(taken_first.get(there, [])))
    assert found[here] == list(range(30, 200))
    assert taken_first.get(there, []) + found[there] == list(range(200))

    reader.assign((here, 0), (there, 0))
    taken_first = reader.take_offsets(20)
    paused, going_on = (here, there) if here in taken_first else (there, here)
    reader.consumer.pause([ClientTopicPartition(*paused)])
    found = reader.take_offsets(200 - len(taken_first.get(going_on, [])))
    assert set(found) == {going_on}, "the queue had messages of the paused partition"
    assert not any(map(len, reader.take_during(PAUSED_S)))
    reader.consumer.resume([ClientTopicPartition(*paused)])
    rest = reader.take_offsets(200 - len(taken_first[paused]))
    assert taken_first[paused] + rest[paused] == list(range(200))

    reader.assign((here, 0), (there, 0))
    taken_first = reader.take_offsets(20)
    revoked, kept = (here, there) if here in taken_first else (there, here)
    reader.queue.forward_partitions([kept])
    reader.consumer.incremental_unassign([ClientTopicPartition(*revoked)])
    found = reader.take_offsets(200 - len(taken_first.get(kept, [])))
    assert set(found) == {kept}, "the queue had messages of the revoked partition"
    assert not any(map(len, reader.take_during(PAUSED_S)))


def test_an_error_of_a_partition_comes_through_the_queue(
    clusters: Clusters, topic: str, reader: Reader
) -> None:
    """A position that is gone: the loop reads its frontier again, as it does without the compiled
    path.
    """
    fill_topic(clusters, topic, 1, [(0, Record(b"k", b"v", ()))])
    reader.assign((TopicPartition(topic, 0), 50))
    found: list[KafkaError] = []

    def has_error() -> bool:
        assert reader.consumer.poll(0) is None
        reader.queue.renew_forwarding()
        error = reader.queue.consume(10, 0.1).error
        found.extend([error] if error else [])
        return bool(found)

    until(has_error, "the error is there")
    assert found[0].code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


@pytest.mark.parametrize("used", ["yes", "no"])
def test_the_service_says_which_one_it_uses(
    clusters: Clusters, topic: str, start: Start, used: str
) -> None:
    """Both copy exactly; the metric tells them apart."""
    clusters.source.create(topic, 2)
    records = make_records(range(RECORDS), 2)
    clusters.source.write(topic, records)
    service = start(topic, "deduplicator", deduplicator_compiled=used)
    wait_for_frontiers(service, 2)
    until(
        lambda: service.metric("reo_deduplicator_compiled") == (used == "yes"), "the metric says it"
    )
    write_intermediate(
        clusters, topic, topic, wrap_records(clusters, topic, add_source_offsets(records))
    )
    clusters.wait_for_copy(topic, RECORDS)
    service.stop()
    assert clusters.differences(topic) == []
