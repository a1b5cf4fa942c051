"""What the tests of `reo recover` do: make a copy with stage two alone, take its frontier away, run the command, and go on.

The group's new protocol is used where nothing depends on it: its members leave at once.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Sequence

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition

from common.frontier import decode
from common.group import Commit
from tests.conftest import Start
from tests.judge import Record
from tests.kafka import ROOT, Cluster, Clusters, until
from tests.service import Service, build_environment
from tests.stage_one import wait_for_frontiers, wrap_records, write_intermediate

FIRST_RECORDS = 100
PARTITIONS = 2
STOP_S = 60
CONSUMER_PROTOCOL = {"deduplicator_group_protocol": "consumer"}
SourceRecords = list[tuple[int, Record]]


def run_recover(clusters: Clusters, topic: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the command as an operator does."""
    process = subprocess.run([sys.executable, "-m", "reo", "recover", *arguments], cwd=ROOT, env={"PATH": "/usr/bin:/bin"} |
                          build_environment(clusters, topic, more), capture_output=True, text=True, timeout=120, check=False)
    print(f"--- reo recover {' '.join(arguments)}: {process.returncode}\n{process.stdout}{process.stderr}")
    assert "Traceback" not in process.stderr
    return process


def read_commits(cluster: Cluster, topic: str) -> dict[int, Commit]:
    """What the group has, and nothing of it undecided."""
    group = f"reo-{topic}"
    request = ConsumerGroupTopicPartitions(group, [TopicPartition(f"{topic}-proxy", partition) for partition in range(PARTITIONS)])
    answers = cluster.admin.list_consumer_group_offsets([request], require_stable=True)[group].result().topic_partitions
    return {answer.partition: Commit(answer.offset, answer.metadata) for answer in answers if answer.offset >= 0}


def alter_offsets(cluster: Cluster, topic: str, commits: dict[int, Commit]) -> None:
    """What an operator can do to a group that nobody is in."""
    group = f"reo-{topic}"
    offsets = [TopicPartition(f"{topic}-proxy", partition, commit.intermediate_offset, commit.metadata or "") for partition, commit in commits.items()]
    for answer in cluster.admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, offsets)])[group].result().topic_partitions:
        assert answer.error is None


def wait_for_empty_group(cluster: Cluster, topic: str) -> str:
    """Wait until the group has no members; returns its name."""
    group = f"reo-{topic}"
    until(lambda: cluster.admin.describe_consumer_groups([group])[group].result().state == ConsumerGroupState.EMPTY, "the group is empty", STOP_S)
    return group


def delete_group(cluster: Cluster, topic: str) -> None:
    """Delete the group, as an operator does or as time does."""
    group = wait_for_empty_group(cluster, topic)
    cluster.admin.delete_consumer_groups([group])[group].result()
    assert read_commits(cluster, topic) == {}


def add_source_offsets(records: Sequence[tuple[int, Record]], begin: int = 0) -> list[tuple[int, int, Record]]:
    """The records from `begin` on, each with its source offset; the source has no gaps here."""
    next_offsets: Counter[int] = Counter()
    numbered = []
    for partition, record in records:
        numbered.append((partition, next_offsets[partition], record))
        next_offsets[partition] += 1
    return numbered[begin:]


def copy_more(clusters: Clusters, topic: str, service: Service, records: SourceRecords, begin: int, source_has: int = 0) -> None:
    """Write records to the source, but for those that it has, and have stage two copy them from `begin` on, in a run that begins at the frontier."""
    clusters.source.write(topic, records[max(begin, source_has):])
    wait_for_frontiers(service, PARTITIONS)
    epoch = 1 + max(decode(commit.metadata).rule.epoch for commit in read_commits(clusters.destination, topic).values())
    write_intermediate(clusters, topic, topic, wrap_records(clusters, topic, add_source_offsets(records, begin), epoch))


def start_and_copy(clusters: Clusters, topic: str, start: Start, records: SourceRecords, **more: str) -> Service:
    """Make a source of FIRST records, and copy it by a stage two, which still runs."""
    clusters.source.create(topic, PARTITIONS)
    service = start(topic, "deduplicator", **more)
    wait_for_frontiers(service, PARTITIONS)
    copy_more(clusters, topic, service, records[:FIRST_RECORDS], 0)
    clusters.wait_for_copy(topic, FIRST_RECORDS, STOP_S)
    return service


def copy_and_stop(clusters: Clusters, topic: str, start: Start, records: SourceRecords, **more: str) -> None:
    """The same; the service has stopped when this returns."""
    start_and_copy(clusters, topic, start, records, **more).stop()


def resume_copy(clusters: Clusters, topic: str, start: Start, records: SourceRecords, source_has: int = FIRST_RECORDS, **more: str) -> None:
    """Start stage two again and copy the rest, of which the source has some already: the judge finds the whole exact."""
    service = start(topic, "deduplicator", **more)
    copy_more(clusters, topic, service, records, FIRST_RECORDS, source_has)
    clusters.wait_for_copy(topic, len(records), STOP_S)
    service.stop()
    assert clusters.differences(topic) == []


def read_frontiers(cluster: Cluster, topic: str) -> dict[int, int]:
    """The committed frontiers, as source offsets."""
    return {partition: decode(commit.metadata).rule.frontier for partition, commit in read_commits(cluster, topic).items()}
