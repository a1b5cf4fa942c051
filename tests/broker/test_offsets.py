"""`reo offsets translate` on real brokers: a consumer group goes on at the destination exactly
behind what it has read at the source.

Both sides have transactions, aborted records at the source among them, of different sizes: no
offset of one side is the other's.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, TopicPartition

from common import settings as reo_settings
from reo.migration.offsets import ProvedOffsets, Translator
from tests.conftest import Start, make_topic_name
from tests.harness.commands import COMMAND_S
from tests.harness.judge import Record
from tests.harness.kafka import ROOT, Cluster, Clusters, make_record, make_records, until
from tests.harness.producing import produce_records
from tests.harness.service import Service, build_environment
from tests.harness.stage_one import wait_for_frontiers, wrap_records, write_intermediate

PARTITIONS = 2
TRANSACTIONS = (
    (True, 4),
    (False, 2),
    (True, 1),
    (True, 5),
    (False, 1),
    (False, 1),
    (True, 3),
    (True, 2),
    (False, 2),
)
SMALL = {"deduplicator_transaction_records": "5"}
Placed = list[tuple[int, Record]]
"""What a read_committed reader sees of one partition, with offsets."""


def placed(
    cluster: Cluster, topic: str, group: str = "reader", begins: dict[int, int] | None = None
) -> dict[int, Placed]:
    """Every visible record with its offset: from the given offsets on, or from where the group
    stands, which then has to be known.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.address,
            "group.id": group,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found: dict[int, Placed] = {partition: [] for partition in range(cluster.partitions(topic))}
    consumer.assign(
        [
            (
                TopicPartition(topic, partition, begins[partition])
                if begins
                else TopicPartition(topic, partition)
            )
            for partition in found
        ]
    )
    unfinished = set(found)
    try:
        while unfinished:
            for message in consumer.consume(1000, 0.2):
                if message.error() is None:
                    record = Record(
                        message.key(),
                        message.value(),
                        tuple(message.headers() or ()),
                        message.timestamp()[1],
                    )
                    found[message.partition()].append((message.offset(), record))
                else:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    unfinished.discard(message.partition())
    finally:
        consumer.close()
    return found


def write_transactions(source: Cluster, topic: str, first: int = 0) -> None:
    """Of every partition, committed and aborted."""
    producer = source.producer(transactional_id=f"{topic}-{first}")
    producer.init_transactions(30)
    for place, (committed, size) in enumerate(TRANSACTIONS):
        producer.begin_transaction()
        produce_records(
            producer,
            topic,
            [
                (partition, make_record(first + 100 * place + number))
                for partition in range(PARTITIONS)
                for number in range(size + partition)
            ],
        )
        assert producer.flush(30) == 0
        (producer.commit_transaction if committed else producer.abort_transaction)(30)


def copy(
    clusters: Clusters, topic: str, service: Service, begins: dict[int, int] | None = None
) -> None:
    """Have stage two copy what the source shows, from the given offsets on."""
    wait_for_frontiers(service, PARTITIONS)
    shown = placed(clusters.source, topic, begins=begins or dict.fromkeys(range(PARTITIONS), 0))
    before = sum(map(len, clusters.destination.read(topic).values()))
    write_intermediate(
        clusters,
        topic,
        topic,
        wrap_records(
            clusters,
            topic,
            [(partition, *at) for partition, records in shown.items() for at in records],
        ),
    )
    number = before + sum(map(len, shown.values()))
    until(
        lambda: sum(map(len, clusters.destination.read(topic).values())) == number, "all is copied"
    )
    until(
        lambda: all(
            service.metric("reo_frontier_offset", topic=topic, partition=str(partition))
            == records[-1][0]
            for partition, records in shown.items()
            if records
        ),
        "and the frontiers are there",
    )


def commit(cluster: Cluster, topic: str, group: str, offsets: dict[int, int]) -> None:
    """What a consumer of the group commits."""
    places = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    for answer in (
        cluster.admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])[
            group
        ]
        .result()
        .topic_partitions
    ):
        assert answer.error is None


def committed(cluster: Cluster, topic: str, group: str) -> dict[int, int]:
    """What the group has committed."""
    asked = ConsumerGroupTopicPartitions(
        group, [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    )
    answers = cluster.admin.list_consumer_group_offsets([asked])[group].result().topic_partitions
    return {answer.partition: answer.offset for answer in answers if answer.offset >= 0}


def translate(
    clusters: Clusters, topic: str, group: str, *arguments: str, **more: str
) -> subprocess.CompletedProcess[str]:
    """The command as an operator gives it."""
    done = subprocess.run(
        [sys.executable, "-m", "reo", "offsets", "translate", "--group", group, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin"} | build_environment(clusters, topic, more),
        timeout=COMMAND_S,
        check=False,
    )
    print(
        f"--- reo offsets translate {' '.join(arguments)}:"
        f" {done.returncode}\n{done.stdout}{done.stderr}"
    )
    assert "Traceback" not in done.stderr
    return done


class Copy(NamedTuple):
    """A finished copy, of which the service still runs."""

    topic: str
    source: dict[int, Placed]
    destination: dict[int, Placed]


@pytest.fixture(scope="module")
def copied(clusters: Clusters, start_for_module: Start) -> Iterator[Copy]:
    """A source of transactions, copied in other ones."""
    topic = clusters.source.create(make_topic_name("offsets"), PARTITIONS)
    write_transactions(clusters.source, topic)
    service = start_for_module(topic, "deduplicator", **SMALL)
    copy(clusters, topic, service)
    zero = dict.fromkeys(range(PARTITIONS), 0)
    yield Copy(
        topic,
        placed(clusters.source, topic, begins=zero),
        placed(clusters.destination, topic, begins=zero),
    )
    service.stop()


def test_every_offset_has_its_place(clusters: Clusters, copied: Copy) -> None:
    """Committed before, on, and behind every record and marker of the source: the destination's
    offset is that of the first visible record from there on.
    """
    ends = clusters.source.end_offsets(copied.topic)
    translator, proved = (
        Translator(reo_settings.load(build_environment(clusters, copied.topic, {}))),
        ProvedOffsets(),
    )
    differing = 0
    for offset in range(max(ends.values()) + 1):
        at = {partition: min(offset, end) for partition, end in ends.items()}
        commit(clusters.source, copied.topic, "every", at)
        rows = translator.translate("every")
        assert offset % 3 or rows == translator.translate("every", proved), (
            "going on from a place that was proved leads elsewhere"
        )
        for row in rows:
            partition = row.source.partition
            unread = [
                number
                for number, (place, _) in enumerate(copied.source[partition])
                if place >= at[partition]
            ]
            there = copied.destination[partition]
            expected = there[unread[0]][0] if unread else there[-1][0] + 1
            assert (row.refusal, row.destination_offset) == (
                None,
                expected,
            ), f"partition {partition}, source offset {at[partition]}"
            differing += expected != at[partition]
    assert differing > max(ends.values()), (
        "the offsets of both sides are the same: nothing was translated"
    )


@pytest.mark.parametrize("seen", [0, 1, 4, 11, 1000])
def test_consumers_go_on_with_what_they_have_not_seen(
    clusters: Clusters, copied: Copy, seen: int
) -> None:
    """A group reads so many records of each partition at the source and commits; at the destination
    it reads exactly the others, while the service runs.
    """
    group = f"{copied.topic}-{seen}"
    consumer = Consumer(
        {
            "bootstrap.servers": clusters.source.address,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([copied.topic])
    read: dict[int, list[Record]] = {partition: [] for partition in range(PARTITIONS)}
    wanted = {partition: min(seen, len(records)) for partition, records in copied.source.items()}
    while (
        any(len(read[partition]) < number for partition, number in wanted.items())
        or not consumer.assignment()
    ):
        message = consumer.poll(0.1)
        if (
            message is not None
            and message.error() is None
            and len(read[message.partition()]) < wanted[message.partition()]
        ):
            read[message.partition()].append(
                Record(
                    message.key(),
                    message.value(),
                    tuple(message.headers() or ()),
                    message.timestamp()[1],
                )
            )
            consumer.commit(
                offsets=[TopicPartition(copied.topic, message.partition(), message.offset() + 1)],
                asynchronous=False,
            )
    if seen == 0:
        consumer.commit(
            offsets=[TopicPartition(copied.topic, partition, 0) for partition in range(PARTITIONS)],
            asynchronous=False,
        )
    consumer.close()
    shown = translate(clusters, copied.topic, group)
    assert shown.returncode == 0
    assert "nothing was changed" in shown.stdout
    assert committed(clusters.destination, copied.topic, group) == {}
    assert translate(clusters, copied.topic, group, "--apply").returncode == 0
    rest = placed(clusters.destination, copied.topic, group)
    for partition, records in copied.source.items():
        assert read[partition] + [record for _, record in rest[partition]] == [
            record for _, record in records
        ]
    again = translate(clusters, copied.topic, group, "--apply")
    assert (again.returncode, again.stdout.splitlines()[-1]) == (0, "there is nothing to commit")


def test_json_and_partitions_that_are_left_alone(clusters: Clusters, copied: Copy) -> None:
    """A partition without an offset is left out; a group that is further at the destination is not
    moved back.
    """
    group, end = f"{copied.topic}-left", copied.destination[1][-1][0] + 1
    commit(clusters.source, copied.topic, group, {1: 0})
    commit(clusters.destination, copied.topic, group, {1: end})
    said = json.loads(translate(clusters, copied.topic, group, "--apply", "--json").stdout)
    assert (said["group"], said["applied"]) == (group, True)
    topics = {"source_topic": copied.topic, "destination_topic": copied.topic}
    assert said["partitions"] == [
        topics
        | {
            "partition": 0,
            "source_offset": None,
            "destination_offset": None,
            "destination_offset_before": None,
            "moves": False,
            "refused": None,
        },
        topics
        | {
            "partition": 1,
            "source_offset": 0,
            "destination_offset": 0,
            "destination_offset_before": end,
            "moves": False,
            "refused": None,
        },
    ]
    assert committed(clusters.destination, copied.topic, group) == {1: end}


def test_a_group_with_members_is_not_touched(clusters: Clusters, copied: Copy) -> None:
    """Exit code 33 while a consumer of the group lives at the destination; what it has committed
    stays.
    """
    group = f"{copied.topic}-busy"
    commit(clusters.source, copied.topic, group, {0: 3, 1: 3})
    consumer = Consumer(
        {
            "bootstrap.servers": clusters.destination.address,
            "group.id": group,
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([copied.topic])
    until(lambda: consumer.poll(0.1) is None and consumer.assignment(), "it is a member")
    refused = translate(clusters, copied.topic, group, "--apply")
    assert refused.returncode == 33
    assert f"group {group} of the destination cluster has members" in refused.stderr
    consumer.close()
    assert committed(clusters.destination, copied.topic, group) == {}
    assert translate(clusters, copied.topic, group, "--apply").returncode == 0


def test_a_group_ahead_of_the_copy_waits(clusters: Clusters, topic: str, start: Start) -> None:
    """What it has read is not copied yet: exit code 32, and nothing is committed for the other
    partition either. Aborted records are nothing to wait for.
    """
    clusters.source.create(topic, PARTITIONS)
    write_transactions(clusters.source, topic)
    service = start(topic, "deduplicator", **SMALL)
    copy(clusters, topic, service)
    before = clusters.source.end_offsets(topic)
    commit(clusters.source, topic, "ahead", before)
    assert translate(clusters, topic, "ahead").returncode == 0, (
        "the last transaction was aborted: there is nothing between the copy and the group"
    )
    write_transactions(clusters.source, topic, 5000)
    commit(clusters.source, topic, "ahead", {1: before[1] + 2})
    refused = translate(clusters, topic, "ahead", "--apply")
    assert refused.returncode == 32
    assert f"{topic}-1: the group is at offset {before[1] + 2}" in refused.stderr
    assert "refused (OffsetUntranslatable)" in refused.stdout
    assert committed(clusters.destination, topic, "ahead") == {}
    copy(clusters, topic, service, before)
    assert translate(clusters, topic, "ahead", "--apply").returncode == 0
    rest = placed(clusters.destination, topic, "ahead")
    shown = placed(clusters.source, topic, begins={0: before[0], 1: before[1] + 2})
    assert {
        partition: [record for _, record in records] for partition, records in rest.items()
    } == {partition: [record for _, record in records] for partition, records in shown.items()}
    commit(clusters.source, topic, "beyond", {0: 10_000})
    assert (
        "the record that it would read next is not there"
        in translate(clusters, topic, "beyond").stderr
    )
    service.stop()


def deleted(cluster: Cluster, topic: str, up_to: dict[int, int]) -> None:
    """What retention does."""
    for place, answer in cluster.admin.delete_records(
        [TopicPartition(topic, partition, offset) for partition, offset in up_to.items()]
    ).items():
        answer.result()
        until(
            lambda place=place: cluster.beginning_offsets(topic)[place.partition] == place.offset,
            "the records are gone",
        )


def test_what_was_deleted_is_not_guessed(clusters: Clusters, topic: str, start: Start) -> None:
    """The group's next record is gone at the source, or at the destination: exit code 32. A group
    at the end needs no record that is left.
    """
    clusters.source.create(topic, PARTITIONS)
    write_transactions(clusters.source, topic)
    service = start(topic, "deduplicator", **SMALL)
    copy(clusters, topic, service)
    ends, source_ends = clusters.destination.end_offsets(topic), clusters.source.end_offsets(topic)
    deleted(clusters.source, topic, {0: 4})
    commit(clusters.source, topic, "below", {0: 3, 1: 3})
    refused = translate(clusters, topic, "below")
    assert refused.returncode == 32
    assert f"{topic}-0: the group is at offset 3, the source has 4 to " in refused.stderr
    deleted(clusters.destination, topic, {1: 8})
    refused = translate(clusters, topic, "below")
    assert f"{topic}-1 has " in refused.stderr
    assert refused.stdout.count("refused (OffsetUntranslatable)") == 2
    deleted(clusters.destination, topic, ends)
    commit(clusters.source, topic, "end", source_ends)
    assert translate(clusters, topic, "end", "--apply").returncode == 0
    assert committed(clusters.destination, topic, "end") == ends
    clusters.source.write(topic, make_records(range(9000, 9010), PARTITIONS))
    copy(clusters, topic, service, source_ends)
    assert [len(records) for records in placed(clusters.destination, topic, "end").values()] == [
        5,
        5,
    ]
    service.stop()


def test_records_of_another_kind_are_not_taken_for_the_copy(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """Before the copy began the destination had other records: a group at these records of the
    source has no place, and the difference is shown (30).
    """
    clusters.source.create(topic, PARTITIONS)
    clusters.source.write(topic, make_records(range(10), PARTITIONS))
    clusters.destination.create(topic, PARTITIONS)
    clusters.destination.write(topic, make_records(range(500, 520), PARTITIONS))
    service = start(
        topic, "deduplicator", source_start="latest", deduplicator_without_frontier="append"
    )
    wait_for_frontiers(service, PARTITIONS)
    clusters.source.write(topic, make_records(range(10, 20), PARTITIONS))
    copy(clusters, topic, service, dict.fromkeys(range(PARTITIONS), 5))
    commit(clusters.source, topic, "early", {0: 7, 1: 4})
    refused = translate(clusters, topic, "early")
    assert refused.returncode == 30
    assert f"{topic}-1 is not a copy of what the group has to read: key, value" in refused.stderr
    said = json.loads(translate(clusters, topic, "early", "--json").stdout)["partitions"]
    assert [
        (row["destination_offset"], row["refused"] and row["refused"]["exit_code"]) for row in said
    ] == [(12, None), (None, 30)]
    service.stop()
