"""Groups that `reo offsets translate` cannot place on real brokers: what they have to read is not
copied yet, was deleted, or is not the copy's. Nothing is guessed.
"""

from __future__ import annotations

import json

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions

from common import settings as reo_settings
from common.errors import OffsetUntranslatable
from reo.migration.group_translator import GroupTranslator
from tests.conftest import Start
from tests.harness.group_offsets import commit, committed, translate
from tests.harness.kafka import Cluster, Clusters, make_record, make_records, until
from tests.harness.service import build_environment
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


def test_topics_that_changed_since_the_service_ran(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """The source has a partition more, and the group has read there: exit code 32, and nothing is
    committed for the others. The destination is deleted and recreated between translation and
    commit: nothing is committed to the new topic.
    """
    clusters.source.create(topic, PARTITIONS)
    write_transactions(clusters.source, topic)
    service = start(topic, "deduplicator", **SMALL)
    copy(clusters, topic, service)
    service.stop()
    commit(clusters.source, topic, "whole", {0: 3, 1: 3})
    translator = GroupTranslator(reo_settings.load(build_environment(clusters, topic, {})))
    rows = translator.translate("whole")
    clusters.source.admin.create_partitions([NewPartitions(topic, PARTITIONS + 1)])[topic].result()
    until(lambda: clusters.source.partitions(topic) == PARTITIONS + 1, "the source has grown")
    assert translate(clusters, topic, "whole").returncode == 0, "it has not read there"
    clusters.source.write(topic, [(PARTITIONS, make_record(number)) for number in range(9)])
    commit(clusters.source, topic, "grown", {0: 3, 1: 3, PARTITIONS: 5})
    refused = translate(clusters, topic, "grown", "--apply")
    assert refused.returncode == 32
    assert f"the destination does not have {topic}-{PARTITIONS} yet" in refused.stderr
    assert committed(clusters.destination, topic, "grown") == {}
    clusters.destination.delete(topic)
    clusters.destination.create(topic, PARTITIONS)
    with pytest.raises(OffsetUntranslatable, match="deleted and recreated"):
        translator.commit("whole", rows)
    assert committed(clusters.destination, topic, "whole") == {}


def test_with_failover_the_identity_says_nothing(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """The frontiers of such a copy have the topic's name alone: groups are translated all the
    same. In single mode that copy is another topic's (21).
    """
    clusters.source.create(topic, PARTITIONS)
    service = start(topic, "deduplicator", source_mode="failover")
    wait_for_frontiers(service, PARTITIONS)
    commit(clusters.source, topic, "candidates", {0: 0})
    assert translate(clusters, topic, "candidates").returncode == 21
    done = translate(clusters, topic, "candidates", "--apply", source_mode="failover")
    assert done.returncode == 0, done.stderr
    assert committed(clusters.destination, topic, "candidates") == {0: 0}
    service.stop()
