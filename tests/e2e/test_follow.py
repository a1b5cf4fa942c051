"""A source that changes while the service runs is followed, by one worker or several, by one
service or two.
"""

from __future__ import annotations

import signal
import time

import pytest
from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import NewPartitions

from tests.conftest import Start
from tests.harness.kafka import COPY_S, Cluster, Clusters, make_record, make_records, until
from tests.harness.producing import produce_records
from tests.harness.recovery import add_source_offsets
from tests.harness.service import Service, send_signal
from tests.harness.stage_one import wait_for_frontiers, wrap_records, write_intermediate

QUIET_S = 7.0
"""Longer than any time after which stage one may think that something is wrong with a run."""


def add_partitions(source: Cluster, topic: str, partitions: int) -> None:
    """To the source only."""
    source.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result()
    until(lambda: source.partitions(topic) == partitions, "the source has the new partitions")


def owners(clusters: Clusters, group: str) -> dict[str, list[int]]:
    """Member id → partitions, once the group has a coordinator and is stable."""
    try:
        found = clusters.destination.admin.describe_consumer_groups([group])[group].result()
    except KafkaException:
        return {}
    if found.state != ConsumerGroupState.STABLE:
        return {}
    return {
        member.member_id: sorted(tp.partition for tp in member.assignment.topic_partitions)
        for member in found.members
    }


def test_a_growing_topic_is_followed(clusters: Clusters, topic: str, start: Start) -> None:
    """Records written before, during and after the start arrive, and so do a transaction that was
    long open and added partitions.
    """
    source = clusters.source
    source.create(topic, 2)
    source.write(topic, make_records(range(500), 2))
    service = start(topic)
    clusters.wait_for_copy(topic, 500)  # what was there before the start

    source.write(topic, make_records(range(500, 1500), 2))
    clusters.wait_for_copy(topic, 1500)  # what was written during the run

    # it must not end by itself meanwhile
    producer = source.producer(transactional_id=topic, transaction_timeout_ms=600_000)
    producer.init_transactions(30)
    producer.begin_transaction()
    produce_records(producer, topic, [(0, make_record(number)) for number in range(1500, 1600)])
    assert producer.flush(30) == 0
    source.write(topic, [(1, make_record(1600)), (0, make_record(1601))])
    until(
        lambda: make_record(1600) in clusters.destination.read(topic)[1],
        "the other partition goes on while a transaction is open",
        COPY_S,
    )
    producer.commit_transaction(30)
    # the committed transaction, and what waited behind it
    clusters.wait_for_copy(topic, 1602)

    add_partitions(source, topic, 4)
    source.write(topic, make_records(range(2000, 3000), 4))
    # the added partitions, from their first record on
    clusters.wait_for_copy(topic, 2602)
    assert (
        clusters.destination.partitions(topic)
        == clusters.destination.partitions(f"{topic}-proxy")
        == 4
    )
    # one that has stalled just then is followed by a run with the new partitions too
    assert any(service.metric("reo_runs_total", reason=why) for why in ("grown", "stalled")), (
        "a new run has to follow the new partitions"
    )
    service.stop()


def test_a_run_goes_on_until_a_new_partition_has_a_frontier(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """Stage two stands still while the source gets a partition: stage one creates what that needs,
    and writes what the others get. Only then a run with the new partition begins.
    """
    source, destination, intermediate_topic = (
        clusters.source,
        clusters.destination,
        f"{topic}-proxy",
    )
    source.create(topic, 2)
    source.write(topic, make_records(range(500), 2))
    service = start(topic)
    clusters.wait_for_copy(topic, 500)

    worker = until(lambda: service.find_pid("deduplicator", 0), "the worker lives")
    send_signal(worker, signal.SIGSTOP)
    add_partitions(source, topic, 3)
    until(
        lambda: destination.partitions(intermediate_topic) == 3,
        "the intermediate topic has the new partition",
        COPY_S,
    )
    before = destination.end_offsets(intermediate_topic)
    source.write(topic, make_records(range(500, 1000), 2))
    until(
        lambda: all(
            end > before[partition]
            for partition, end in destination.end_offsets(intermediate_topic).items()
            if partition < 2
        ),
        "the run goes on",
        COPY_S,
    )
    assert service.metric("reo_runs_total", reason="grown") == 0
    send_signal(worker, signal.SIGCONT)
    source.write(topic, make_records(range(1000, 2000), 3))
    clusters.wait_for_copy(topic, 2000)
    assert service.metric("reo_runs_total", reason="grown") == 1
    service.stop()


@pytest.mark.long
def test_a_quiet_topic_is_left_in_peace(clusters: Clusters, topic: str, start: Start) -> None:
    """With nothing to copy, an empty partition and a purged intermediate topic, the run goes on: it
    is not ended and begun again and again.
    """
    clusters.source.create(topic, 3)
    # partition 2 stays empty
    clusters.source.write(topic, [(number % 2, make_record(number)) for number in range(100)])
    service = start(topic)
    clusters.wait_for_copy(topic, 100)
    destination, intermediate_topic = clusters.destination, f"{topic}-proxy"
    until(
        lambda: (
            destination.beginning_offsets(intermediate_topic)
            == destination.end_offsets(intermediate_topic)
        ),
        "the intermediate topic is purged",
        COPY_S,
    )
    before = service.metric("reo_runs_total")
    quiet_until = time.monotonic() + QUIET_S
    until(
        lambda: time.monotonic() > quiet_until or service.metric("reo_runs_total") > before,
        "nothing happens",
    )
    assert service.metric("reo_runs_total") == before, service.read_log_tail()
    clusters.source.write(topic, make_records(range(100, 400), 3))
    clusters.wait_for_copy(topic, 400)  # what comes after the silence
    service.stop()


def is_disturbed(service: Service) -> bool:
    """Whether a worker stood still for so long that it has lost its partitions, or does not know
    how a transaction ended: then it may count records twice, and be started again.
    """
    return bool(
        service.metric("reo_rebalances_total", event="lost")
        or service.metric("reo_transactions_total", outcome="unknown")
    )


def test_three_workers_share_the_partitions(clusters: Clusters, topic: str, start: Start) -> None:
    """Each of three workers has two of six partitions; together they copy all of them, and none
    dies of it.
    """
    clusters.source.create(topic, 6)
    service = start(topic, "deduplicator", deduplicator_workers="3")
    shares = until(
        lambda: found if len(found := owners(clusters, f"reo-{topic}")) == 3 else None,
        "the group has three members and is stable",
    )
    assert sorted(partition for share in shares.values() for partition in share) == list(range(6))
    assert all(len(share) == 2 for share in shares.values()), shares
    workers = [service.find_pid("deduplicator", worker) for worker in range(3)]
    wait_for_frontiers(service, 6)
    records = make_records(range(12_000), 6)
    clusters.source.write(topic, records)
    write_intermediate(
        clusters, topic, topic, wrap_records(clusters, topic, add_source_offsets(records))
    )
    clusters.wait_for_copy(topic, 12_000)
    until(
        lambda: (
            is_disturbed(service)
            or all(
                service.metric(
                    "reo_records_out_total", stage="deduplicator", partition=str(partition)
                )
                == 2000
                for partition in range(6)
            )
        ),
        "each partition's records are counted",
    )
    assert (
        is_disturbed(service)
        or [service.find_pid("deduplicator", worker) for worker in range(3)] == workers
    ), "nothing was killed here, so nobody may have died"
    service.stop()


@pytest.mark.long  # tests/e2e/test_permissions.py runs them so too
def test_the_two_stages_run_as_two_services(clusters: Clusters, topic: str, start: Start) -> None:
    """`reo run replicator` and `reo run deduplicator` copy together what one service copies, and
    each runs its own stage only.
    """
    clusters.source.create(topic, 2)
    clusters.source.write(topic, make_records(range(20_000), 2))
    one, two = start(topic, "replicator"), start(topic, "deduplicator")
    clusters.wait_for_copy(topic, 20_000)
    assert one.find_pid("replicator")
    assert not one.find_pid("deduplicator")
    assert two.find_pid("deduplicator")
    assert not two.find_pid("replicator")
    assert not two.find_pid("jvm")
    one.stop()
    clusters.source.write(topic, make_records(range(20_000, 20_100), 2))
    again = start(topic, "replicator")
    clusters.wait_for_copy(topic, 20_100)  # a new stage one goes on where the first stopped
    again.stop()
    two.stop()
