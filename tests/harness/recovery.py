"""Helpers for tests of `reo recover`: copy with stage two alone, delete the frontier, run the
command, and resume the copy.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Sequence

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicPartition,
)

from common.frontier import decode
from common.kafka.consumer_group import Commit, list_group_offsets
from tests.conftest import Start
from tests.harness.admin_requests import COORDINATOR_STARTS
from tests.harness.commands import LONG_COMMAND_S, reo
from tests.harness.copy_judge import Record
from tests.harness.kafka import Cluster, Clusters, until
from tests.harness.service import Service
from tests.harness.stage_one import wait_for_frontiers, wrap_records, write_intermediate

FIRST_RECORDS = 100
PARTITIONS = 2
STOP_S = 60
LONG_SESSION = dict.fromkeys(
    ("deduplicator_session_timeout_ms", "deduplicator_transaction_timeout_ms"), "60000"
)
"""A worker that the group gives up begins with first frontiers."""
SourceRecords = list[tuple[int, Record]]


def run_recover(
    clusters: Clusters, topic: str, *arguments: str, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run the command as an operator does."""
    return reo(
        clusters, topic, "recover", *arguments, exit_code=None, timeout_s=LONG_COMMAND_S, **more
    )


def list_stable_offsets(
    cluster: Cluster, asked: ConsumerGroupTopicPartitions
) -> list[TopicPartition]:
    """The offsets of a group, without those of open transactions. Its coordinator may be starting,
    with its broker: then it is waited for.
    """

    def try_to_list() -> tuple[list[TopicPartition]] | None:
        try:
            return (list_group_offsets(cluster.admin, asked, require_stable=True),)
        except KafkaException as failed:
            if failed.args[0].code() not in COORDINATOR_STARTS:
                raise
            return None

    (answers,) = until(try_to_list, "the group's coordinator has started")
    return [answer for answer in answers if answer.offset >= 0]


def read_commits(cluster: Cluster, topic: str) -> dict[int, Commit]:
    """The commits of the group, without offsets of open transactions."""
    group = f"reo-{topic}"
    request = ConsumerGroupTopicPartitions(
        group, [TopicPartition(f"{topic}-proxy", partition) for partition in range(PARTITIONS)]
    )
    return {
        answer.partition: Commit(answer.offset, answer.metadata or "")
        for answer in list_stable_offsets(cluster, request)
    }


def wait_for_commits(cluster: Cluster, topic: str) -> dict[int, Commit]:
    """The commits of all partitions: a transaction's offsets can be read a moment after its commit
    is answered.
    """

    def read_all() -> dict[int, Commit] | None:
        commits = read_commits(cluster, topic)
        return commits if len(commits) == PARTITIONS else None

    return until(read_all, "every frontier")


def wait_for_next_epoch(cluster: Cluster, topic: str) -> int:
    """An epoch above those of all frontiers, which it waits for."""
    commits = wait_for_commits(cluster, topic)
    return 1 + max(decode(commit.metadata).epoch for commit in commits.values())


def alter_offsets(cluster: Cluster, topic: str, commits: dict[int, Commit]) -> None:
    """Alter the offsets of a group without members, as an operator can."""
    group = f"reo-{topic}"
    offsets = [
        TopicPartition(f"{topic}-proxy", partition, commit.offset, commit.metadata)
        for partition, commit in commits.items()
    ]
    for answer in (
        cluster.admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, offsets)])[
            group
        ]
        .result()
        .topic_partitions
    ):
        assert answer.error is None


def wait_for_empty_group(cluster: Cluster, topic: str) -> str:
    """Wait until the group has no members; returns its name."""
    group = f"reo-{topic}"
    until(
        lambda: (
            cluster.admin.describe_consumer_groups([group])[group].result().state
            == ConsumerGroupState.EMPTY
        ),
        "the group is empty",
        STOP_S,
    )
    return group


def delete_group(cluster: Cluster, topic: str) -> None:
    """Delete the group, as an operator or its expiration does."""
    group = wait_for_empty_group(cluster, topic)
    cluster.admin.delete_consumer_groups([group])[group].result()
    assert read_commits(cluster, topic) == {}


def add_source_offsets(
    records: Sequence[tuple[int, Record]], begin: int = 0
) -> list[tuple[int, int, Record]]:
    """The records from `begin` on, each with its source offset; the source has no gaps here."""
    next_offsets: Counter[int] = Counter()
    numbered = []
    for partition, record in records:
        numbered.append((partition, next_offsets[partition], record))
        next_offsets[partition] += 1
    return numbered[begin:]


def copy_more(
    clusters: Clusters,
    topic: str,
    service: Service,
    records: SourceRecords,
    begin: int,
    source_has: int = 0,
) -> None:
    """Write to the source the records that it does not have, and let stage two copy from `begin`
    on, in a run that starts at the frontier.
    """
    clusters.source.write(topic, records[max(begin, source_has) :])
    wait_for_frontiers(service, PARTITIONS)
    epoch = wait_for_next_epoch(clusters.destination, topic)
    write_intermediate(
        clusters,
        topic,
        topic,
        wrap_records(clusters, topic, add_source_offsets(records, begin), epoch),
    )


def start_and_copy(
    clusters: Clusters, topic: str, start: Start, records: SourceRecords, **more: str
) -> Service:
    """Create a source of FIRST_RECORDS records and copy it with stage two, which still runs."""
    clusters.source.create(topic, PARTITIONS)
    service = start(topic, "deduplicator", **more)
    wait_for_frontiers(service, PARTITIONS)
    copy_more(clusters, topic, service, records[:FIRST_RECORDS], 0)
    clusters.wait_for_copy(topic, FIRST_RECORDS, STOP_S)
    return service


def copy_and_stop(
    clusters: Clusters, topic: str, start: Start, records: SourceRecords, **more: str
) -> None:
    """Create a source of FIRST_RECORDS records, copy it with stage two, and stop the service."""
    start_and_copy(clusters, topic, start, records, **more).stop()


def resume_copy(
    clusters: Clusters,
    topic: str,
    start: Start,
    records: SourceRecords,
    source_has: int = FIRST_RECORDS,
    **more: str,
) -> None:
    """Start stage two again and copy the rest, of which the source has some records already: the
    whole copy must be exact.
    """
    service = start(topic, "deduplicator", **more)
    copy_more(clusters, topic, service, records, FIRST_RECORDS, source_has)
    clusters.wait_for_copy(topic, len(records), STOP_S)
    service.stop()
    assert clusters.differences(topic) == []


def read_frontiers(cluster: Cluster, topic: str) -> dict[int, int]:
    """The committed frontiers, as source offsets."""
    return {
        partition: decode(commit.metadata).source_offset
        for partition, commit in read_commits(cluster, topic).items()
    }
