"""Groups that `reo offsets translate` cannot place on real brokers: what they have to read is not
copied yet, was deleted, or is not the copy's. Nothing is guessed.
"""

from __future__ import annotations

import json

from confluent_kafka import TopicPartition

from tests.conftest import Start
from tests.harness.group_offsets import commit, committed, translate
from tests.harness.kafka import Cluster, Clusters, make_records, until
from tests.harness.stage_one import wait_for_frontiers
from tests.harness.transactional_copy import PARTITIONS, SMALL, copy, placed, write_transactions


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


def delete_up_to(cluster: Cluster, topic: str, up_to: dict[int, int]) -> None:
    """What retention does."""
    for tp, answer in cluster.admin.delete_records(
        [TopicPartition(topic, partition, offset) for partition, offset in up_to.items()]
    ).items():
        answer.result()
        until(
            lambda tp=tp: cluster.beginning_offsets(topic)[tp.partition] == tp.offset,
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
    delete_up_to(clusters.source, topic, {0: 4})
    commit(clusters.source, topic, "below", {0: 3, 1: 3})
    refused = translate(clusters, topic, "below")
    assert refused.returncode == 32
    assert f"{topic}-0: the group is at offset 3, the source has 4 to " in refused.stderr
    delete_up_to(clusters.destination, topic, {1: 8})
    refused = translate(clusters, topic, "below")
    assert f"{topic}-1 has " in refused.stderr
    assert refused.stdout.count("refused (OffsetUntranslatable)") == 2
    delete_up_to(clusters.destination, topic, ends)
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
