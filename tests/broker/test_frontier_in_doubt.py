"""A frontier that a transaction is about to move: nobody can say yet whether the source has deleted
what was not copied. Kafka writes the markers of a transaction one partition after the other, so its
records can be visible, and be deleted at the source, while its offsets are not committed yet.
"""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientTopicPartition

from common.errors import SourceTruncated
from common.settings import load
from tests.broker.test_history import create_planner
from tests.conftest import Start
from tests.harness.kafka import Clusters, make_records, until
from tests.harness.stage_one import wait_for_frontiers


def begin_moving(clusters: Clusters, group: str, offset: ClientTopicPartition) -> Any:
    """A producer with an open transaction that commits this offset."""
    member = Consumer({"bootstrap.servers": clusters.destination.address, "group.id": group})
    producer = clusters.destination.producer(transactional_id=group)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.send_offsets_to_transaction([offset], member.consumer_group_metadata(), 30)
    member.close()
    return producer


def test_a_loss_is_not_believed_while_the_frontier_is_in_doubt(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """The source begins after the frontier: a stop, but only when no transaction can move it. Stage
    two runs: without it nothing is planned.
    """
    clusters.source.create(topic, 1)
    clusters.source.write(topic, make_records(range(3), 1))
    service = start(topic, "deduplicator")
    wait_for_frontiers(service, 1)
    settings = load(service.environment)
    planner = create_planner(settings)
    tp = settings.build_routes()[0].get_intermediate(0)
    commits = until(lambda: planner.try_read_commits([tp]), "the frontier can be read")
    commit = commits[tp]
    frontiers = {tp: commit.frontier}
    producer = begin_moving(
        clusters,
        settings.application,
        ClientTopicPartition(*tp, commit.intermediate_offset, commit.frontier.encode()),
    )
    everything = ClientTopicPartition(topic, 0, 3)
    clusters.source.admin.delete_records([everything])[everything].result()
    until(lambda: planner.try_read_commits(frontiers) == commits, "it is as it was")
    assert planner._has_moved(frontiers)
    producer.abort_transaction(30)
    until(lambda: not planner._has_moved(frontiers), "the transaction is over")
    with pytest.raises(SourceTruncated, match="3 offsets were deleted"):
        planner.plan()
    service.stop()
