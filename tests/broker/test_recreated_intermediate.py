"""An intermediate topic that is deleted and created again: the group's offsets, with the frontiers,
go with the old one, and so do records that nobody had read.
"""

from __future__ import annotations

import time

from common import frontier, run_epochs
from common.errors import FrontierLost
from tests.conftest import Start
from tests.harness.kafka import Clusters, make_records, until
from tests.harness.recovery import (
    FIRST_RECORDS,
    PARTITIONS,
    add_source_offsets,
    alter_offsets,
    copy_and_stop,
    resume_copy,
    run_recover,
    wait_for_commits,
    wait_for_empty_group,
    wait_for_next_epoch,
)
from tests.harness.service import Service
from tests.harness.stage_one import wait_for_frontiers, wrap_records, write_intermediate

RECREATED = "deleted and created again"
FIRST = "first frontier, the copy begins"
STALE_BATCH = range(10, 30)


def recreate_intermediate(clusters: Clusters, topic: str) -> None:
    """Another topic of the same name."""
    clusters.destination.delete(f"{topic}-proxy")
    clusters.destination.create(f"{topic}-proxy", PARTITIONS)


def read_epochs(clusters: Clusters, topic: str) -> list[int]:
    """The epochs of the frontiers, of all partitions."""
    commits = wait_for_commits(clusters.destination, topic)
    return [frontier.decode(commit.metadata).rule.epoch for commit in commits.values()]


def has_begun_again(service: Service) -> bool:
    """Whether the worker has seen it, or the client has noticed the deletion and joined the group
    again.
    """
    return RECREATED in service.log or service.log.count(FIRST) > PARTITIONS


def recover(clusters: Clusters, topic: str) -> None:
    """What the message of exit code 22 says."""
    wait_for_empty_group(clusters.destination, topic)
    assert run_recover(clusters, topic, "--apply").returncode == 0


def test_a_run_that_goes_on_leaves_nothing_out(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """The worker stands still. A run has written the first records, which are deleted with the
    topic, and begins its next batch at offset 0 of the new one, where the worker's position is. No
    record of that run is copied; one that has read the new frontiers copies all.
    """
    clusters.source.create(topic, PARTITIONS)
    records = make_records(range(FIRST_RECORDS), PARTITIONS)
    clusters.source.write(topic, records)
    service = start(topic, "deduplicator")
    wait_for_frontiers(service, PARTITIONS)
    stale = run_epochs.create_run_epoch(int(time.time() * 1000), read_epochs(clusters, topic), 7)
    numbered = add_source_offsets(records)
    service.signal("deduplicator", "SIGSTOP")
    write_intermediate(
        clusters,
        topic,
        topic,
        wrap_records(
            clusters, topic, [record for record in numbered if record[1] < STALE_BATCH[0]], stale
        ),
    )
    recreate_intermediate(clusters, topic)
    write_intermediate(
        clusters,
        topic,
        topic,
        wrap_records(
            clusters, topic, [record for record in numbered if record[1] in STALE_BATCH], stale
        ),
    )
    service.signal("deduplicator", "SIGCONT")
    until(lambda: has_begun_again(service), "the partitions have begun again")
    wait_for_frontiers(service, PARTITIONS)
    epochs = until(
        lambda: found if min(found := read_epochs(clusters, topic)) > stale else None,
        "the epochs are raised",
    )
    assert not any(clusters.destination.read(topic).values())
    now = run_epochs.create_run_epoch(int(time.time() * 1000), epochs, 8)
    write_intermediate(clusters, topic, topic, wrap_records(clusters, topic, numbered, now))
    clusters.wait_for_copy(topic, FIRST_RECORDS)
    service.stop()
    assert clusters.differences(topic) == []


def test_frontiers_of_unread_partitions_are_committed_again(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """A new topic that is empty too looks as before to the worker. The group has the frontiers
    again, which stage one's next run waits for, and the copy begins where it would have.
    """
    clusters.source.create(topic, PARTITIONS)
    records = make_records(range(FIRST_RECORDS), PARTITIONS)
    clusters.source.write(topic, records)
    service = start(topic, "deduplicator", source_start="0=7,1=0")
    wait_for_frontiers(service, PARTITIONS)
    before = max(read_epochs(clusters, topic))
    recreate_intermediate(clusters, topic)
    until(lambda: has_begun_again(service), "the partitions have begun again")
    until(lambda: min(read_epochs(clusters, topic)) > before, "the frontiers are committed again")
    wait_for_frontiers(service, PARTITIONS)
    copied = [record for record in add_source_offsets(records) if record[0] or record[1] >= 7]
    write_intermediate(clusters, topic, topic, wrap_records(clusters, topic, copied))
    until(
        lambda: sum(map(len, clusters.destination.read(topic).values())) == len(copied),
        "the records are copied",
    )
    service.stop()
    source, copy = clusters.source.read(topic), clusters.destination.read(topic)
    assert copy == {0: source[0][7:], 1: source[1]}


def test_where_records_were_read_it_goes_on_or_says_what_to_do(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """The copy goes on where the watch has seen it while the new topic was shorter. It is a stop
    where that has grown as far as the old one was read, or where the client has noticed the
    deletion first and has no frontier: then `reo recover` finds it.
    """
    clusters.source.create(topic, PARTITIONS)
    clusters.source.write(topic, make_records(range(FIRST_RECORDS), PARTITIONS))
    service = start(topic)
    clusters.wait_for_copy(topic, FIRST_RECORDS)
    recreate_intermediate(clusters, topic)
    clusters.source.write(topic, make_records(range(FIRST_RECORDS, 2 * FIRST_RECORDS), PARTITIONS))
    until(
        lambda: service.process.poll() is not None or clusters.differences(topic) == [],
        "the copy is exact again, or the service has stopped",
    )
    if service.process.poll() is not None:
        assert service.process.returncode == FrontierLost.exit_code, service.read_log_tail()
        recover(clusters, topic)
        service = start(topic)
        until(lambda: clusters.differences(topic) == [], "the copy is exact again")
    service.stop()


def test_records_of_two_topics_at_one_position_are_a_stop(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """The topic is created again while the service is stopped, and the frontiers are put back. At
    their positions, a batch of the new topic begins that leaves records out. Nothing of it is
    copied, `reo recover` finds the frontiers, and the copy goes on.
    """
    records = make_records(range(2 * FIRST_RECORDS), PARTITIONS)
    copy_and_stop(clusters, topic, start, records)
    wait_for_empty_group(clusters.destination, topic)
    commits = wait_for_commits(clusters.destination, topic)
    stale = wait_for_next_epoch(clusters.destination, topic)
    recreate_intermediate(clusters, topic)
    numbered = add_source_offsets(records)
    position = commits[0].intermediate_offset
    for offsets in (range(position), range(position + 5, len(numbered))):
        batch = [record for record in numbered if record[1] in offsets]
        write_intermediate(clusters, topic, topic, wrap_records(clusters, topic, batch, stale))
    alter_offsets(clusters.destination, topic, commits)
    service = start(topic, "deduplicator")
    assert service.wait_for_exit() == FrontierLost.exit_code, service.read_log_tail()
    assert f"{topic}-proxy was {RECREATED}, and both topics have had records" in service.log
    recover(clusters, topic)
    resume_copy(clusters, topic, start, records)
