"""librdkafka joins a group again without telling: a worker must not commit as the member that it is
by then, for partitions that are another worker's.
"""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import NewPartitions

from deduplicator.group_metadata import parse_group_metadata
from tests.broker.test_partitions import Member
from tests.harness.kafka import Cluster, Clusters, until

OPTIONS = {
    "intermediate_consumer_options_topic_metadata_refresh_interval_ms": "500",
    # a member that the group has expired would join again as another one
    "deduplicator_session_timeout_ms": "600000",
    # a member learns of a rebalance from its next heartbeat, a quarter of the session otherwise
    "intermediate_consumer_options_heartbeat_interval_ms": "500",
    "deduplicator_transaction_timeout_ms": "600000",
}


def commit_as(cluster: Cluster, member: bytes, offset: ClientTopicPartition) -> None:
    """Offsets in a transaction, which is aborted."""
    producer = Producer(
        {"bootstrap.servers": cluster.address, "transactional.id": f"{offset.topic}-one"}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.send_offsets_to_transaction([offset], member, 30)
    producer.abort_transaction(30)


def test_a_commit_is_refused_for_what_was_lost_unseen(clusters: Clusters, topic: str) -> None:
    """One worker is away from poll (a user's function is slow, say) while partitions are added and
    the group rebalances: its client joins again by itself, and its callbacks have not run. What it
    sends then is refused; with the metadata of now it would be accepted.
    """
    destination = clusters.destination
    destination.create(topic, 2)
    one, two = (Member(clusters, topic, number, **OPTIONS) for number in (1, 2))

    def is_shared() -> bool:
        assert one.poll_offsets() == two.poll_offsets() == []
        return len(one.partitions.waiting) == len(two.partitions.waiting) == 1

    until(is_shared, "each has a partition")
    ((lost, waiting),) = one.partitions.waiting.items()
    consumer, member = one.intermediate.consumer, one.intermediate.member_metadata
    generation, member_id = parse_group_metadata(member.get())
    offset = ClientTopicPartition(*lost, 1)
    polls, next_addition, count = 0, 0, 2

    def has_joined_again() -> bool:
        """Its client joins again when it sees a partition that is new to it while the group
        rebalances; and the group may wait for one more to be seen. Between them it needs time:
        twice as many polls each time.
        """
        nonlocal polls, next_addition, count
        two.poll_offsets()
        if polls == next_addition:
            next_addition, count = max(5, 2 * polls), count + 1
            new = NewPartitions(topic, count)
            destination.admin.create_partitions([new])[topic].result()
        polls += 1
        now, _ = parse_group_metadata(consumer.consumer_group_metadata())
        return now > generation and not is_refused(consumer, destination, offset)

    until(has_joined_again, "its client has joined again: offsets of its generation are taken")
    assert one.partitions.waiting.keys() == {lost}, "its callbacks have not run"
    assert parse_group_metadata(member.get()) == (generation, member_id)
    with pytest.raises(KafkaException, match="generation"):
        commit_as(destination, member.get(), offset)
    until(
        lambda: one.poll_offsets() or one.partitions.waiting.get(lost) is not waiting,
        "a poll tells it",
    )


def is_refused(consumer: Consumer, cluster: Cluster, offset: ClientTopicPartition) -> bool:
    """Whether the group does not take an offset as its member of now."""
    try:
        commit_as(cluster, consumer.consumer_group_metadata(), offset)
    except KafkaException:
        return True
    return False
