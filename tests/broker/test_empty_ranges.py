"""What the source has nothing of is written down, so its deletion by retention is no loss: markers
and aborted records.

The whole way is gone with real brokers, without Spark: what stage one's run would have written is
written by hand, all else is stage one's own.
"""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import NewPartitions

from common.envelope import Head
from common.routes import TopicPartition
from common.settings import load
from replicator.runs.empty_envelopes import STATE_AGAIN_S, EmptyEnvelopes
from tests.broker.test_history import create_planner
from tests.conftest import Start
from tests.harness.compared_sides import wait_for_markers
from tests.harness.copy_judge import compare_partitions
from tests.harness.kafka import Clusters, make_record, until
from tests.harness.producing import produce_records
from tests.harness.service import build_environment
from tests.harness.stage_one import wait_for_frontiers, wrap_records, write_intermediate
from tests.harness.stage_without_engine import create_stage, create_watch

RECORDS = 10


def with_markers(clusters: Clusters, topic: str) -> None:
    """A committed transaction, then an aborted one: of 15 offsets 10 are records that are seen."""
    clusters.source.create(topic, 1)
    producer = clusters.source.producer(transactional_id=topic)
    producer.init_transactions()
    for numbers, end in (
        (range(RECORDS), producer.commit_transaction),
        (range(900, 903), producer.abort_transaction),
    ):
        producer.begin_transaction()
        produce_records(producer, topic, [(0, make_record(number)) for number in numbers])
        assert producer.flush(30) == 0
        end()
    until(
        lambda: clusters.source.end_offsets(topic, stable=True) == {0: 15}, "both markers are there"
    )


@pytest.mark.parametrize("stop_at_end", [False, True], ids=["while it runs", "at its end"])
def test_markers_that_retention_deletes_are_no_loss(
    clusters: Clusters, topic: str, start: Start, stop_at_end: bool
) -> None:
    """A quiet partition ends with offsets that nobody sees: they are written down, and the next
    start begins behind them.
    """
    with_markers(clusters, topic)
    service = start(topic, "deduplicator")
    wait_for_frontiers(service, 1)
    write_intermediate(
        clusters,
        topic,
        topic,
        wrap_records(
            clusters, topic, [(0, number, make_record(number)) for number in range(RECORDS)]
        ),
    )
    until(lambda: service.metric("reo_frontier_offset") == RECORDS - 1, "the records are copied")
    settings = load(service.environment, arguments={"stop_at_end": "true"} if stop_at_end else {})
    stage = create_stage(settings)
    plan = stage.planner.plan()
    assert plan is not None
    assert set(plan.start_offsets.values()) == {RECORDS}
    if stop_at_end:
        wait_for_markers(clusters.destination, topic)
        until(lambda: stage._find_left(plan) == "nothing", "the end is committed, and shown")
    else:
        watch = create_watch(stage, plan)
        until(
            lambda: (
                stage._evaluate_run(watch) is None and service.metric("reo_frontier_offset") == 14
            ),
            "the watch has it written down",
        )
    until(lambda: service.metric("reo_frontier_offset") == 14, "the frontier is at the end")
    tp = ClientTopicPartition(topic, 0, 15)
    clusters.source.admin.delete_records([tp])[tp].result()
    assert clusters.source.beginning_offsets(topic) == {0: 15}
    clusters.source.write(topic, [(0, make_record(15))])
    again = create_planner(settings).plan()
    assert again is not None
    assert set(again.start_offsets.values()) == {15}
    write_intermediate(
        clusters,
        topic,
        topic,
        wrap_records(clusters, topic, [(0, 15, make_record(15))], epoch=again.epoch),
    )
    until(lambda: service.metric("reo_frontier_offset") == 15, "the copy goes on")
    wanted = {0: [make_record(number) for number in (*range(RECORDS), 15)]}
    until(
        lambda: not compare_partitions(wanted, clusters.destination.read(topic)),
        "the copy is exact, with the markers of its last transaction",
    )


def test_what_cannot_be_written_yet_is_written_by_a_later_call(
    clusters: Clusters, topic: str
) -> None:
    """The producer does not know a partition that is new, and its client refuses the envelope: the
    same one is written when it does, and once.
    """
    clusters.destination.create(topic, 1)
    writer = EmptyEnvelopes(load(build_environment(clusters, topic, {})))

    def write(partition: int) -> None:
        head = Head("9f86d081884c7d65", 7, partition, 9, 14)
        writer.write({TopicPartition(topic, partition): head}, STATE_AGAIN_S)

    def is_written(partition: int) -> bool:
        write(partition)
        return clusters.destination.end_offsets(topic)[partition] > 0

    until(lambda: is_written(0), "the producer knows the topic")
    write(1)
    assert set(writer.written) == {(topic, 0)}
    assert writer.undelivered == {(topic, 1)}
    clusters.destination.admin.create_partitions([NewPartitions(topic, 2)])[topic].result()
    until(lambda: clusters.destination.partitions(topic) == 2, "the partition exists")
    until(lambda: is_written(1), "the envelope is written")
    write(1)
    assert writer.producer is not None
    writer.producer.flush(5)
    assert clusters.destination.end_offsets(topic) == {0: 1, 1: 1}
    assert not writer.undelivered
