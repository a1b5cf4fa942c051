"""What a rebalance does to stage two, with real members of a group: nothing is fetched of a
partition before it is begun. (`tests/unit/deduplicator/test_rebalance.py` has the loop.)
"""

from __future__ import annotations

import time

import pytest
from confluent_kafka.admin import MemberDescription

from common.kafka.clients import create_stage_two_consumer
from common.routes import Route, TopicPartition
from common.settings import load
from deduplicator.intermediate_consumer import Intermediate
from deduplicator.partition import Partition
from deduplicator.partitions import Partitions
from tests.harness.kafka import Cluster, Clusters, make_record, until
from tests.harness.recovery import LONG_SESSION
from tests.harness.service import build_environment
from tests.unit.deduplicator.test_rebalance import FRONTIER


class Member:
    """A real member of a group."""

    def __init__(self, clusters: Clusters, topic: str, number: int, **settings: str) -> None:
        self.partitions = Partitions()
        loaded = load(build_environment(clusters, topic, settings))
        self.intermediate = Intermediate(create_stage_two_consumer(loaded, number), self.partitions)
        self.intermediate.subscribe([topic])

    def poll_offsets(self) -> list[tuple[int, int]]:
        """What a poll has of it: partition and offset of each record."""
        return [
            (message.partition(), message.offset()) for message in self.intermediate.consume(1.0)
        ]

    def begin(self) -> None:
        """Read all that waits from offset 3."""
        self.partitions.start(
            Partition(tp, Route(tp.topic, tp.topic, tp.topic), 3, FRONTIER)
            for tp in list(self.partitions.waiting)
        )
        self.intermediate.start_fetching()

    def end(self) -> None:
        """As when its process ends, which ends its client too."""
        self.intermediate.close(is_planned=False)
        self.intermediate.consumer.close()


def list_members(cluster: Cluster, group: str) -> list[MemberDescription]:
    """Those that the coordinator counts as members of this group."""
    members: list[MemberDescription] = (
        cluster.admin.describe_consumer_groups([group])[group].result().members
    )
    return members


def test_members_share_partitions_before_and_after_they_begin(
    clusters: Clusters, topic: str
) -> None:
    """With real members: nothing is fetched of a partition that waits, then it is read from its
    offset, and it changes hands in either state.
    """
    clusters.destination.create(topic, 2)
    clusters.destination.write(
        topic, [(partition, make_record(number)) for number in range(5) for partition in range(2)]
    )
    topic_partitions = {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    one = Member(clusters, topic, 1)
    assert (
        until(
            lambda: one.poll_offsets() or one.partitions.waiting.keys() == topic_partitions,
            "the group has taken it in",
        )
        is True
    )
    assert one.poll_offsets() == one.poll_offsets() == []
    one.begin()
    seen: list[tuple[int, int]] = []
    until(lambda: seen.extend(one.poll_offsets()) or len(seen) >= 4, "it reads")
    assert sorted(seen) == [(partition, offset) for partition in range(2) for offset in (3, 4)]
    two = Member(clusters, topic, 2)

    def is_shared() -> bool:
        assert two.poll_offsets() == []
        one.poll_offsets()
        mine = one.partitions.assigned.keys() | one.partitions.waiting.keys()
        return (
            len(mine) == len(two.partitions.waiting) == 1
            and mine | two.partitions.waiting.keys() == topic_partitions
        )

    until(is_shared, "each has one")
    two.end()  # before it has begun
    assert not two.partitions.waiting
    until(
        lambda: (
            one.poll_offsets() is not None
            and one.partitions.assigned.keys() | one.partitions.waiting.keys() == topic_partitions
        ),
        "the first one has both again",
    )
    one.begin()
    assert one.partitions.assigned.keys() == topic_partitions
    one.end()
    assert not one.partitions.assigned


@pytest.mark.parametrize("is_planned", [True, False])
def test_a_worker_that_stops_while_it_joins_ends(
    clusters: Clusters, topic: str, is_planned: bool
) -> None:
    """At any moment of it, also when an assignment waits for the next poll. It may come while the
    client is closed: that nobody answers it keeps no partition.
    """
    clusters.destination.create(topic, 2)
    for pause_s in (0, 0.05, 0.1, 0.2, 0.4, 0.8):
        member = Member(clusters, topic, 1)
        time.sleep(pause_s)
        member.intermediate.close(is_planned)
        assert is_planned or member.intermediate.assignments == 0, "it is not closed"


@pytest.mark.parametrize("is_planned", [False, True])
def test_a_planned_end_leaves_the_group_at_once(
    clusters: Clusters, topic: str, is_planned: bool
) -> None:
    """Whoever waits for the service to stop does not wait for the end of a session, of a minute
    here. A static member that dies stays: its successor takes its place.
    """
    destination, group = clusters.destination, f"reo-{topic}"
    destination.create(topic, 2)
    member = Member(clusters, topic, 1, **LONG_SESSION)
    until(lambda: member.poll_offsets() or len(member.partitions.waiting) == 2, "it has both")
    member.intermediate.close(is_planned)
    assert bool(list_members(destination, group)) == (not is_planned)
