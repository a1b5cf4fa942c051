"""The intermediate topic loses everything under a running stage two: it is deleted and created
again, emptied, or set back to an older copy of itself. That costs a repeated read and nothing else:
no process ends, and the copy is exact. (The whole service, under load: `faults/stories`.)
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from common.frontier import Frontier, decode
from tests.conftest import Start
from tests.harness.copy_judge import Record
from tests.harness.kafka import PAUSE_S, ROOT, Cluster, Clusters, make_records, until
from tests.harness.recovery import (
    LONG_SESSION,
    PARTITIONS,
    add_source_offsets,
    list_stable_offsets,
)
from tests.harness.service import Service
from tests.harness.stage_one import wait_for_frontiers, wrap_records, write_intermediate
from tools.demo.broker import Broker
from tools.demo.fair_share import Limit
from tools.faults.run import PARTITIONS as LOG_PARTITIONS
from tools.faults.stories.lost_envelopes import restore_logs, save_logs

FIRST_RECORDS = 40 * PARTITIONS
GAP_S, RUNS_MAX = 5.0, 10
"""As stage one's watch has it, which begins another run then; and how many at most."""


def read_frontiers(cluster: Cluster, topic: str) -> dict[int, Frontier]:
    """The committed frontiers, by partition; without those of an open transaction."""
    everything = ConsumerGroupTopicPartitions(f"reo-{topic}")
    answers = list_stable_offsets(cluster, everything)
    return {answer.partition: decode(answer.metadata) for answer in answers}


def read_states(cluster: Cluster, topic: str) -> dict[int, tuple[object, ...]]:
    """What the frontiers say of the source. What they say of the destination is compared with its
    records when a partition is started again, and counted anew.
    """
    return {
        partition: (one.source_offset, one.epoch, one.gap, one.last_record)
        for partition, one in read_frontiers(cluster, topic).items()
    }


def copy_in_runs(clusters: Clusters, topic: str, records: Sequence[tuple[int, Record]]) -> int:
    """What stage one does with the source's records: runs that begin after the frontiers, each with
    an epoch of its own, until all is copied; how many it needed.
    """
    numbered = add_source_offsets(records)
    counts = Counter(partition for partition, *_ in numbered)

    def is_copied() -> bool:
        frontiers = read_frontiers(clusters.destination, topic)
        return all(
            partition in frontiers and frontiers[partition].source_offset == count - 1
            for partition, count in counts.items()
        )

    for run in range(1, RUNS_MAX):
        frontiers = until(
            lambda: (
                found
                if len(found := read_frontiers(clusters.destination, topic)) == len(counts)
                else None
            ),
            "every partition has a frontier",
        )
        new = [record for record in numbered if record[1] > frontiers[record[0]].source_offset]
        epoch = 1 + max(frontier.epoch for frontier in frontiers.values())
        write_intermediate(clusters, topic, topic, wrap_records(clusters, topic, new, epoch))
        limit = Limit(GAP_S)
        while not limit.is_over():
            if is_copied():
                return run
            time.sleep(PAUSE_S)
    raise AssertionError(f"not copied: {read_frontiers(clusters.destination, topic)}")


def start_and_copy(
    clusters: Clusters, topic: str, start: Start, partitions: int = PARTITIONS, **more: str
) -> Service:
    """Stage two, which has copied the first records."""
    clusters.source.create(topic, partitions)
    records = make_records(range(FIRST_RECORDS), partitions)
    clusters.source.write(topic, records)
    service = start(topic, "deduplicator", **more)
    wait_for_frontiers(service, partitions)
    assert copy_in_runs(clusters, topic, records) == 1
    return service


def copy_the_rest(
    clusters: Clusters, topic: str, service: Service, partitions: int = PARTITIONS
) -> None:
    """As many records more; the service has gone on, and the copy is exact."""
    records = make_records(range(2 * FIRST_RECORDS), partitions)
    clusters.source.write(topic, records[FIRST_RECORDS:])
    copy_in_runs(clusters, topic, records)
    until(lambda: clusters.differences(topic) == [], "the copy is exact")
    assert_went_on(service)


def assert_went_on(service: Service) -> None:
    """No process has ended, and it still copies."""
    assert service.process.poll() is None, service.read_log_tail()
    assert service.metric("reo_stage_restarts_total", stage="deduplicator") == 0
    assert service.errors == []
    service.stop()


def create_at_once(clusters: Clusters, topic: str, _: Service) -> None:
    """Before the client can notice the deletion."""
    clusters.destination.create(f"{topic}-proxy", PARTITIONS)


def create_late(clusters: Clusters, topic: str, service: Service) -> None:
    """After the client has noticed it, and given the partitions up."""
    service.wait_for_log("are revoked")
    clusters.destination.create(f"{topic}-proxy", PARTITIONS)


@pytest.mark.parametrize("create", [create_at_once, create_late])
def test_a_topic_that_is_recreated_costs_a_repeated_read(
    clusters: Clusters,
    topic: str,
    start: Start,
    create: Callable[[Clusters, str, Service], None],
) -> None:
    """The group loses the frontiers with its offsets, and gets them back from the worker before
    anything is written: stage one waits for them.
    """
    service = start_and_copy(clusters, topic, start)
    before = read_states(clusters.destination, topic)
    clusters.destination.delete(f"{topic}-proxy")
    create(clusters, topic, service)
    until(
        lambda: read_states(clusters.destination, topic) == before,
        "the group has the frontiers again",
    )
    copy_the_rest(clusters, topic, service)


@pytest.mark.parametrize("create", [create_at_once, create_late])
def test_frontiers_of_a_mapping_are_committed_again(
    clusters: Clusters,
    topic: str,
    start: Start,
    create: Callable[[Clusters, str, Service], None],
) -> None:
    """On a route that is not one to one nothing at the destination says how far the copy is: the
    worker believes what it has committed itself, if nobody else can have had its partitions since.
    That is so while its session lasts.
    """
    clusters.source.create(topic, PARTITIONS)
    records = make_records(range(FIRST_RECORDS), PARTITIONS)
    clusters.source.write(topic, records)
    service = start(
        topic,
        "deduplicator",
        source_topic="",
        application=f"reo-{topic}",
        topics=f"{topic}={topic}:key",
        **LONG_SESSION,
    )
    wait_for_frontiers(service, PARTITIONS)
    copy_in_runs(clusters, topic, records)
    before = read_states(clusters.destination, topic)
    clusters.destination.delete(f"{topic}-proxy")
    create(clusters, topic, service)
    until(
        lambda: read_states(clusters.destination, topic) == before,
        "the group has the frontiers again",
    )
    more = make_records(range(FIRST_RECORDS, 2 * FIRST_RECORDS), PARTITIONS)
    clusters.source.write(topic, more)
    copy_in_runs(clusters, topic, [*records, *more])
    copied = [record for part in clusters.destination.read(topic).values() for record in part]
    assert sorted(copied) == sorted(record for _, record in [*records, *more])
    assert_went_on(service)


def test_a_topic_that_is_emptied_costs_a_repeated_read(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """Also of what nobody had read: stage two stands still meanwhile."""
    service = start_and_copy(clusters, topic, start)
    records = make_records(range(FIRST_RECORDS + 30), PARTITIONS)
    numbered = add_source_offsets(records)
    unread = [record for record in numbered if record[1] >= FIRST_RECORDS // PARTITIONS]
    clusters.source.write(topic, records[FIRST_RECORDS:])
    epoch = 1 + max(one.epoch for one in read_frontiers(clusters.destination, topic).values())
    service.signal("deduplicator", "SIGSTOP")
    write_intermediate(clusters, topic, topic, wrap_records(clusters, topic, unread, epoch))
    ends = clusters.destination.end_offsets(f"{topic}-proxy")
    requests = [TopicPartition(f"{topic}-proxy", partition, end) for partition, end in ends.items()]
    for answer in clusters.destination.admin.delete_records(requests).values():
        answer.result()
    assert clusters.destination.beginning_offsets(f"{topic}-proxy") == ends
    service.signal("deduplicator", "SIGCONT")
    copy_in_runs(clusters, topic, records)
    until(lambda: clusters.differences(topic) == [], "the copy is exact")
    assert_went_on(service)


def test_a_run_that_goes_on_leaves_nothing_out(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """The worker stands still. A run has written the first records, which are deleted with the
    topic unread, and goes on in the new one, from offset 0 on, where the worker's position is. What
    follows is beyond a gap: nothing of it is copied before a new run begins at the frontier.
    """
    clusters.source.create(topic, PARTITIONS)
    records = make_records(range(FIRST_RECORDS), PARTITIONS)
    clusters.source.write(topic, records)
    service = start(topic, "deduplicator")
    wait_for_frontiers(service, PARTITIONS)
    numbered, middle = add_source_offsets(records), FIRST_RECORDS // PARTITIONS // 2
    lost, kept = (
        [record for record in numbered if (record[1] < middle) == is_first]
        for is_first in (True, False)
    )
    service.signal("deduplicator", "SIGSTOP")
    write_intermediate(clusters, topic, topic, wrap_records(clusters, topic, lost, 7 << 20))
    clusters.destination.delete(f"{topic}-proxy")
    clusters.destination.create(f"{topic}-proxy", PARTITIONS)
    write_intermediate(clusters, topic, topic, wrap_records(clusters, topic, kept, 7 << 20))
    service.signal("deduplicator", "SIGCONT")
    until(
        lambda: (
            (
                {(one.source_offset, one.gap) for one in found.values()}
                if len(found := read_frontiers(clusters.destination, topic)) == PARTITIONS
                else None
            )
            == {(-1, middle - 1)}
        ),
        "the gap is seen",
    )
    assert not any(clusters.destination.read(topic).values())
    copy_in_runs(clusters, topic, records)
    assert clusters.differences(topic) == []
    assert_went_on(service)


def test_an_older_copy_of_the_topic_costs_a_repeated_read(
    clusters: Clusters, topic: str, start: Start, tmp_path: Path
) -> None:
    """The destination's only broker comes back with older logs of it, which end before the worker's
    position: the client goes on at their beginning, and what comes again is dropped. (A worker may
    end with its broker, and is started again; the service goes on.)
    """
    broker = Broker(tmp_path / "destination", ROOT / "jars" / "broker", 384)

    def start_broker() -> Clusters:
        """With new clients: one that has lost its connection waits long for a coordinator."""
        return Clusters(clusters.source, Cluster(broker.start().wait()))

    try:
        fragile = start_broker()
        address = fragile.destination.address
        service = start_and_copy(
            fragile, topic, start, LOG_PARTITIONS, destination_bootstrap_servers=address
        )
        broker.stop(timeout_s=60)
        first_offsets = save_logs(broker, f"{topic}-proxy", tmp_path / "older")
        fragile = start_broker()
        records = make_records(range(FIRST_RECORDS + 40), LOG_PARTITIONS)
        fragile.source.write(topic, records[FIRST_RECORDS:])
        copy_in_runs(fragile, topic, records)
        ends = fragile.destination.end_offsets(f"{topic}-proxy")
        broker.stop(timeout_s=60)
        restore_logs(broker, f"{topic}-proxy", tmp_path / "older", first_offsets)
        fragile = start_broker()
        assert sum(fragile.destination.end_offsets(f"{topic}-proxy").values()) < sum(ends.values())
        more = make_records(range(FIRST_RECORDS + 40, FIRST_RECORDS + 80), LOG_PARTITIONS)
        fragile.source.write(topic, more)
        copy_in_runs(fragile, topic, [*records, *more])
        until(lambda: fragile.differences(topic) == [], "the copy is exact")
        assert service.process.poll() is None, service.read_log_tail()
        service.stop()
    finally:
        broker.kill()
