"""`reo recover` on real brokers where both sides do not begin alike: retention took records, the
copy began in the middle, or one side is empty.
"""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition

from tests.conftest import Start
from tests.harness.kafka import Clusters, make_record, make_records, until
from tests.harness.recovery import (
    FIRST_RECORDS,
    PARTITIONS,
    STOP_S,
    copy_and_stop,
    copy_more,
    delete_group,
    read_commits,
    read_frontiers,
    run_recover,
    wait_for_commits,
)
from tests.harness.stage_one import wait_for_frontiers


@pytest.mark.parametrize(
    ("source_gone", "destination_gone"),
    [
        pytest.param(0, 20, marks=pytest.mark.long),
        pytest.param(10, 20, marks=pytest.mark.long),
        pytest.param(30, 20, marks=pytest.mark.long),
        (20, 0),
    ],
)
def test_retention_took_the_beginning(
    clusters: Clusters, topic: str, start: Start, source_gone: int, destination_gone: int
) -> None:
    """Of either side, more here or more there: what is left is enough to find the frontier, and
    nothing is copied twice or left out behind it.
    """
    records = make_records(range(2 * FIRST_RECORDS), PARTITIONS)
    copy_and_stop(clusters, topic, start, records)
    delete_group(clusters.destination, topic)
    for cluster, gone in ((clusters.source, source_gone), (clusters.destination, destination_gone)):
        for tp, answer in cluster.admin.delete_records(
            [TopicPartition(topic, partition, gone) for partition in range(PARTITIONS) if gone]
        ).items():
            answer.result()
            until(
                lambda cluster=cluster, tp=tp, gone=gone: (
                    cluster.beginning_offsets(topic)[tp.partition] == gone
                ),
                "the records are gone",
            )
    left = {partition: len(found) for partition, found in clusters.destination.read(topic).items()}
    assert run_recover(clusters, topic, "--apply").returncode == 0
    assert read_frontiers(clusters.destination, topic) == dict.fromkeys(range(PARTITIONS), 49)
    service = start(topic, "deduplicator")
    copy_more(clusters, topic, service, records, FIRST_RECORDS)
    until(
        lambda: all(
            len(found) == left[partition] + 50
            for partition, found in clusters.destination.read(topic).items()
        ),
        "the rest is copied",
        STOP_S,
    )
    service.stop()
    for partition, found in clusters.destination.read(topic).items():
        assert found == [record for tp, record in records if tp == partition][-len(found) :]


def test_equal_records_whose_beginning_is_gone_are_refused(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """The same records all over, and no common beginning any more: exit code 22 says that the data
    does not tell, and nothing is committed.
    """
    copy_and_stop(
        clusters,
        topic,
        start,
        [(number % PARTITIONS, make_record(7)) for number in range(FIRST_RECORDS)],
    )
    delete_group(clusters.destination, topic)
    tp = TopicPartition(topic, 0, 20)
    clusters.destination.admin.delete_records([tp])[tp].result()
    until(lambda: clusters.destination.beginning_offsets(topic)[0] == 20, "the records are gone")
    refused = run_recover(clusters, topic, "--apply")
    assert refused.returncode == 22
    assert "the data does not tell how far the copy is" in refused.stderr
    assert read_commits(clusters.destination, topic) == {}


def test_a_copy_that_began_in_the_middle(clusters: Clusters, topic: str, start: Start) -> None:
    """With source.start=latest the destination's first record is not the source's: it is found by
    content. An empty partition is not guessed.
    """
    latest = {"source_start": "latest"}
    clusters.source.create(topic, PARTITIONS)
    records = [(0, make_record(number)) for number in range(40)]
    clusters.source.write(topic, [*records[:10], (1, make_record(1))])
    service = start(topic, "deduplicator", **latest)
    wait_for_frontiers(service, PARTITIONS)
    wait_for_commits(clusters.destination, topic)
    assert read_frontiers(clusters.destination, topic) == {0: 9, 1: 0}
    copy_more(clusters, topic, service, records[:30], 10)
    until(lambda: len(clusters.destination.read(topic)[0]) == 20, "20 are copied")
    service.stop()
    delete_group(clusters.destination, topic)
    refused = run_recover(clusters, topic, "--apply", **latest)
    assert refused.returncode == 22
    assert f"{topic}-1 is empty, and source.start=latest does not tell" in refused.stderr
    assert "source offset 29 (20 of 20 records compared)" in refused.stdout
    assert run_recover(clusters, topic, "--apply").returncode == 30, (
        "source.start=earliest was not the copy's"
    )
    assert read_commits(clusters.destination, topic) == {}
    since = str(make_record(10).timestamp_ms)
    assert run_recover(clusters, topic, "--apply", source_start=since).returncode == 0
    assert read_frontiers(clusters.destination, topic) == {0: 29, 1: 0}
    service = start(topic, "deduplicator", **latest)
    copy_more(clusters, topic, service, records, 30)
    until(
        lambda: (
            clusters.destination.read(topic) == {0: [record for _, record in records[10:]], 1: []}
        ),
        "the rest is copied",
        STOP_S,
    )
    service.stop()


def test_an_empty_destination_and_one_ahead_of_nothing(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """Nothing copied: the frontier is before the source's first record. Records at the destination
    where the source has none: exit code 30.
    """
    clusters.source.create(topic, PARTITIONS)
    service = start(topic, "deduplicator")
    wait_for_frontiers(service, PARTITIONS)
    service.stop()
    delete_group(clusters.destination, topic)
    clusters.destination.write(topic, [(0, make_record(0))])
    assert run_recover(clusters, topic, "--apply").returncode == 30
    assert read_commits(clusters.destination, topic) == {}
    clusters.source.write(topic, make_records(range(FIRST_RECORDS), PARTITIONS))
    assert run_recover(clusters, topic, "--apply").returncode == 0
    assert read_frontiers(clusters.destination, topic) == {0: 0, 1: -1}
    service = start(topic, "deduplicator")
    records = make_records(range(FIRST_RECORDS), PARTITIONS)
    copy_more(clusters, topic, service, records, 1, source_has=FIRST_RECORDS)
    clusters.wait_for_copy(topic, FIRST_RECORDS, STOP_S)
    service.stop()


def test_without_a_destination_there_is_nothing_to_recover(clusters: Clusters, topic: str) -> None:
    """No destination topic: said so, and none is made."""
    clusters.source.create(topic, PARTITIONS)
    refused = run_recover(clusters, topic, "--apply")
    assert refused.returncode == 11
    assert "nothing was copied to it yet" in refused.stderr
    assert (
        clusters.destination.partitions(topic)
        == clusters.destination.partitions(f"{topic}-proxy")
        == 0
    )
