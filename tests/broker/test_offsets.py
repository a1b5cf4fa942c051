"""`reo offsets translate` on real brokers: a consumer group goes on at the destination exactly
behind what it has read at the source.

Both sides have transactions, aborted records at the source among them, of different sizes: no
offset of one side is the other's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from common import settings as reo_settings
from reo.migration.group_translator import GroupTranslator, ProvedOffsets
from tests.conftest import Start, make_topic_name
from tests.harness.copy_judge import Record, to_record
from tests.harness.group_offsets import commit, committed, read_metadata, translate
from tests.harness.kafka import Clusters, until
from tests.harness.service import build_environment
from tests.harness.transactional_copy import (
    PARTITIONS,
    SMALL,
    Copy,
    copy,
    placed,
    write_transactions,
)


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
        GroupTranslator(reo_settings.load(build_environment(clusters, copied.topic, {}))),
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
            read[message.partition()].append(to_record(message))
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


def test_the_metadata_of_a_commit_goes_with_it(clusters: Clusters, copied: Copy) -> None:
    """It is the application's: Kafka Streams has its stream time there."""
    commit(clusters.source, copied.topic, "streams", {0: 5}, "AgAAAYsAAAAA")
    commit(clusters.source, copied.topic, "streams", {1: 5})
    assert translate(clusters, copied.topic, "streams", "--apply").returncode == 0
    assert read_metadata(clusters.destination, copied.topic, "streams") == {
        0: "AgAAAYsAAAAA",
        1: "",
    }
