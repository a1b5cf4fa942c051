"""Where a copy begins: each form of `source.start`, on real brokers, also when everything dies
before the first record is copied.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions

from tests.conftest import Start
from tests.harness.copy_judge import compare_partitions
from tests.harness.failpoint_marker import wait_for_failpoint
from tests.harness.kafka import Cluster, Clusters, make_record, make_records, until
from tests.harness.merged_topics import build_topics_environment
from tests.harness.recovery import add_source_offsets, delete_group
from tests.harness.service import Service, stopped
from tests.harness.stage_one import wait_for_frontiers, wrap_records, write_intermediate

PARTITIONS = 3
RECORDS = 300
EACH = RECORDS // PARTITIONS


def source_with_records(clusters: Clusters, topic: str) -> None:
    """Partition p has the numbers p, p + PARTITIONS …, at offsets 0, 1 …; the timestamp of number n
    is that of `plain(n)`.
    """
    clusters.source.create(topic, PARTITIONS)
    clusters.source.write(topic, make_records(range(RECORDS), PARTITIONS))


def differences_from(clusters: Clusters, topic: str, begins: dict[int, int]) -> list[str]:
    """The judge's verdict on a copy that begins at these source offsets."""
    source = {
        partition: records[begins[partition] :]
        for partition, records in clusters.source.read(topic).items()
    }
    return compare_partitions(source, clusters.destination.read(topic))


def delete_up_to(cluster: Cluster, topic: str, partition: int, offset: int) -> None:
    """Delete the beginning of a partition."""
    cluster.admin.delete_records([TopicPartition(topic, partition, offset)])[
        TopicPartition(topic, partition)
    ].result()


def read_first_frontiers(service: Service, topic: str) -> dict[int, int]:
    """What the service says of the first frontiers that it made."""
    said = re.findall(
        rf"{re.escape(topic)}-(\d+): first frontier, the copy begins at source offset (\d+)",
        service.log,
    )
    return {int(partition): int(offset) for partition, offset in said}


@pytest.mark.long
def test_offsets_also_after_a_death_before_the_first_record(
    clusters: Clusters, topic: str, start: Start, tmp_path: Path
) -> None:
    """Two partitions begin at their offsets, the one that is not named at its first record. Stage
    two dies between frontier and first record, and later the service is started with another
    `source.start`: neither moves the beginning.
    """
    source_with_records(clusters, topic)
    proof = tmp_path / "died"
    begins = {0: 40, 1: EACH, 2: 0}
    service = start(
        topic,
        "deduplicator",
        source_start=f"0=40, 1={EACH}",
        die_at=f"two: first frontier made:1:{proof}",
    )
    wait_for_failpoint(proof, "two: first frontier made")
    wait_for_frontiers(service, PARTITIONS)
    assert read_first_frontiers(service, topic) == begins
    service.stop()
    clusters.source.write(topic, [(1, make_record(1000))])
    assert start(topic, "--stop-at-end", source_start="0=7,1=7,2=7").wait_for_exit() == 0
    assert clusters.destination.count_offsets(topic) > 0
    assert differences_from(clusters, topic, begins) == []


def find_beginnings(
    clusters: Clusters, topic: str, start: Start, partitions: int = PARTITIONS, **more: str
) -> dict[int, int]:
    """Start stage two until it has its frontiers, and return where it says that the copy begins.
    (The test above shows that stage one begins there.)
    """
    service = start(topic, "deduplicator", **more)
    wait_for_frontiers(service, partitions)
    service.stop()
    return read_first_frontiers(service, topic)


def test_a_moment_in_iso_8601(clusters: Clusters, topic: str, start: Start) -> None:
    """The first record from that moment on; a partition whose records are all older begins at its
    end.
    """
    source_with_records(clusters, topic)
    old = [
        (2, make_record(number)._replace(timestamp_ms=1_000_000_000_000))
        for number in range(5000, 5005)
    ]
    delete_up_to(clusters.source, topic, 2, EACH)
    clusters.source.write(topic, old)
    moment = datetime.fromtimestamp(1_700_000_000_150 / 1000, UTC).isoformat(
        timespec="milliseconds"
    )
    # 150 and 151 are the first of their partitions
    assert find_beginnings(clusters, topic, start, source_start=moment) == {
        0: 50,
        1: 50,
        2: EACH + len(old),
    }


@pytest.mark.long  # the simulator tells this story in every run
def test_latest_also_after_a_restart_before_the_first_record(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """What comes after the first start is copied, though the service was down when it came; a
    partition that is added begins at its first record.
    """
    source_with_records(clusters, topic)
    assert find_beginnings(clusters, topic, start, source_start="latest") == dict.fromkeys(
        range(PARTITIONS), EACH
    )
    clusters.source.admin.create_partitions([NewPartitions(topic, PARTITIONS + 1)])[topic].result()
    until(
        lambda: clusters.source.partitions(topic) == PARTITIONS + 1,
        "the source has the new partition",
    )
    clusters.source.write(topic, make_records(range(RECORDS, RECORDS + 80), PARTITIONS + 1))
    assert start(topic, "--stop-at-end", source_start="latest").wait_for_exit() == 0
    assert differences_from(clusters, topic, {0: EACH, 1: EACH, 2: EACH, 3: 0}) == []


@pytest.mark.long  # the simulator tells this story in every run
def test_latest_for_a_topic_that_appeared_while_stage_two_was_down(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """It is copied whole, though nobody saw it come: the group has frontiers of another topic. That
    one began at its end, with either of two workers.
    """
    first, later = f"{topic}-first", f"{topic}-later"
    rules = {"source_start": "latest", "deduplicator_workers": "2"}
    source_with_records(clusters, first)
    service = start(
        topic,
        "deduplicator",
        environment=build_topics_environment(clusters, topic, f"^{topic}-.*", **rules),
    )
    wait_for_frontiers(service, PARTITIONS)
    assert read_first_frontiers(service, first) == dict.fromkeys(range(PARTITIONS), EACH)
    service.stop()
    source_with_records(clusters, later)
    service = start(
        topic,
        "deduplicator",
        environment=build_topics_environment(clusters, topic, f"^{topic}-.*", **rules),
    )
    until(
        lambda: read_first_frontiers(service, later) == dict.fromkeys(range(PARTITIONS), 0),
        "the topic that appeared begins at its first records",
    )
    assert read_first_frontiers(service, first) == {}
    service.stop()


@pytest.mark.long  # the simulator tells this story in every run
def test_latest_where_the_frontiers_of_an_empty_copy_were_lost(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """The group is deleted after something was sent and before anything arrived: what the source
    has is copied whole.
    """
    clusters.source.create(topic, PARTITIONS)
    service = start(topic, "deduplicator", source_start="latest")
    wait_for_frontiers(service, PARTITIONS)
    clusters.source.write(topic, make_records(range(RECORDS), PARTITIONS))
    write_intermediate(
        clusters, topic, topic, wrap_records(clusters, topic, [(0, 1, make_record(1))])
    )
    until(
        lambda: service.metric("reo_records_dropped_total", reason="gap") == 1,
        "a record after a gap was dropped",
    )
    service.stop()
    delete_group(clusters.destination, topic)
    service = start(topic, "deduplicator", source_start="latest")
    wait_for_frontiers(service, PARTITIONS)
    assert read_first_frontiers(service, topic) == dict.fromkeys(range(PARTITIONS), 0)
    service.stop()


def test_going_on_behind_what_another_program_has_copied(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """A topic that kaf-relay has filled stands at the source offsets of its ends: with these, and
    told to append, the whole becomes an exact copy.
    """
    source_with_records(clusters, topic)
    clusters.destination.create(topic, PARTITIONS)
    clusters.destination.write(topic, make_records(range(120), PARTITIONS))
    ends = clusters.destination.end_offsets(topic)
    service = start(
        topic,
        "deduplicator",
        source_start=",".join(f"{partition}={end}" for partition, end in ends.items()),
        deduplicator_without_frontier="append",
    )
    wait_for_frontiers(service, PARTITIONS)
    assert read_first_frontiers(service, topic) == ends
    write_intermediate(
        clusters,
        topic,
        topic,
        wrap_records(
            clusters, topic, add_source_offsets(make_records(range(RECORDS), PARTITIONS), 120)
        ),
    )
    clusters.wait_for_copy(topic, RECORDS)
    service.stop()


def test_offsets_that_are_not_there_are_refused(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """All at once, each with the offsets that there are; and no partition is begun, so that a
    corrected setting is taken for all of them.
    """
    source_with_records(clusters, topic)
    delete_up_to(clusters.source, topic, 1, 10)
    wrong = start(topic, "deduplicator", source_start=f"0=5,1=9,2={EACH + 1}")
    stopped(
        wrong,
        2,
        "SettingsInvalid",
        f"offset 9 of {topic}-1, which has 10 to {EACH}",
        f"offset {EACH + 1} of {topic}-2, which has 0 to {EACH}",
    )
    stopped(
        start(topic, "deduplicator", source_start="0=5,3=0"),
        2,
        "SettingsInvalid",
        f"partition 3 of {topic}, which has partitions 0 to 2",
    )
    right = start(topic, "deduplicator", source_start=f"0=6,1=10,2={EACH}")
    wait_for_frontiers(right, PARTITIONS)
    assert read_first_frontiers(right, topic) == {0: 6, 1: 10, 2: EACH}
    right.stop()


def test_an_added_partition_is_begun_at_its_first_record_with_offsets(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """Named offsets say nothing of partitions that come later; and named ones that are begun may go
    out of range at the source.
    """
    source_with_records(clusters, topic)
    assert find_beginnings(clusters, topic, start, source_start="0=5") == {0: 5, 1: 0, 2: 0}
    delete_up_to(clusters.source, topic, 0, 5 + 1)
    clusters.source.admin.create_partitions([NewPartitions(topic, PARTITIONS + 1)])[topic].result()
    until(
        lambda: clusters.source.partitions(topic) == PARTITIONS + 1,
        "the source has the new partition",
    )
    clusters.source.write(topic, [(3, make_record(1)), (3, make_record(2))])
    assert find_beginnings(clusters, topic, start, PARTITIONS + 1, source_start="0=5") == {3: 0}
