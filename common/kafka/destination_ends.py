"""`--stop-at-end`: whether the destination topics still have what the frontiers say, as far as
their ids and end offsets show it.

The deduplicator compares more when it starts (`deduplicator.destination_check`), and knows what to
do about a difference. Until it has done so, a frontier says what was copied to a topic that may be
gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from common.errors import ClusterUnreachable
from common.kafka import partition_offsets, topics
from common.kafka.partition_offsets import GroupCommit
from common.routes import Route, TopicPartition
from common.settings import Settings, destination_kind


def has_copied_records(
    client: AdminClient,
    settings: Settings,
    routes: Iterable[Route],
    commits: Mapping[TopicPartition, GroupCommit],
) -> bool:
    """Whether each destination topic is the one of these commits, by intermediate partition, and
    ends after the records that were written to it. False while the cluster does not answer.
    A destination outside of Kafka is not asked.
    """
    if destination_kind.is_outside_kafka(settings):
        return True
    by_topic = {route.intermediate_topic: route for route in routes}
    try:
        described = topics.describe(
            client, {by_topic[tp.topic].destination_topic for tp in commits}
        )
        one_to_one = {
            by_topic[tp.topic].get_destination(tp.partition): commit.frontier
            for tp, commit in commits.items()
            if by_topic[tp.topic].is_one_to_one
        }
        is_same = all(
            (topic := described.get(by_topic[tp.topic].destination_topic)) is not None
            and topic.topic_id == commit.frontier.destination_topic_id
            for tp, commit in commits.items()
        )
        if not is_same:
            return False
        ends = partition_offsets.list_end_offsets(client, one_to_one)
    except (ClusterUnreachable, KafkaException):
        return False
    return all(frontier.last_written_min < ends[tp] for tp, frontier in one_to_one.items())
