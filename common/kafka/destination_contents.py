"""`--stop-at-end`: whether the destination topics have what the frontiers say.

The deduplicator compares them when it is assigned a partition (`deduplicator.frontier_check`),
and knows what to do about a difference. A partition of a worker that died has nobody who does, for
as long as the group waits for that worker, and meanwhile its frontier may say what was copied to a
topic that is gone, or has lost its newest records. So here it is read once more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient

from common.errors import ClusterUnreachable, TopicMissing
from common.frontier import Frontier
from common.kafka import partition_offsets, topics
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S
from common.kafka.partition_offsets import GroupCommit
from common.kafka.visible_records import read_visible
from common.records import compute_message_checksum
from common.routes import Route, TopicPartition
from common.settings import Settings, destination_kind


def has_copied_records(
    client: AdminClient,
    reader: Consumer,
    settings: Settings,
    routes: Iterable[Route],
    commits: Mapping[TopicPartition, GroupCommit],
    beat: Callable[[], None],
) -> bool:
    """Whether each destination topic is the one of these commits, by intermediate partition, and
    shows the records that were written to it last. False while the cluster does not answer, or
    their transaction is open. A destination outside of Kafka is not asked.

    `beat` is called while the reader (`clients.create_reader`) is waited for.
    """
    if destination_kind.is_outside_kafka(settings):
        return True
    by_topic = {route.intermediate_topic: route for route in routes}
    try:
        described = topics.describe(
            client, {by_topic[tp.topic].destination_topic for tp in commits}
        )
        is_same = all(
            (topic := described.get(by_topic[tp.topic].destination_topic)) is not None
            and topic.topic_id == commit.frontier.destination_topic_id
            for tp, commit in commits.items()
        )
        if not is_same:
            return False
        frontiers = {
            by_topic[tp.topic].get_destination(tp.partition): commit.frontier
            for tp, commit in commits.items()
            if by_topic[tp.topic].is_one_to_one
        }
        begins, ends = partition_offsets.list_bounds(client, frontiers, committed_only=True)
        if any(frontier.last_written_min >= ends[tp] for tp, frontier in frontiers.items()):
            return False
        missing = find_missing_records(reader, frontiers, begins, ends, beat)
        return all(
            topics.is_compacted(client, settings.destination_cluster, name)
            for name in {tp.topic for tp in missing}
        )
    except (ClusterUnreachable, TopicMissing, KafkaException):
        return False


def find_missing_records(
    reader: Consumer,
    frontiers: Mapping[TopicPartition, Frontier],
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    beat: Callable[[], None],
) -> set[TopicPartition]:
    """The partitions without the known record, if that is one of this copy, or without as many
    visible records after it as were sent, the last of them as it was written. Those whose known
    record retention has deleted are not among them.
    """
    starts = {
        tp: frontier.destination_known + (not frontier.is_known_written)
        for tp, frontier in frontiers.items()
    }
    expected = {
        tp: frontier.sent + frontier.is_known_written
        for tp, frontier in frontiers.items()
        if begins[tp] <= starts[tp]
    }
    missing = {tp for tp, count in expected.items() if count}
    found: Counter[TopicPartition] = Counter()
    for message in read_visible(
        reader, {tp: starts[tp] for tp in missing}, REQUEST_TIMEOUT_S, ends, beat
    ):
        tp = TopicPartition(message.topic(), message.partition())
        found[tp] += 1
        if found[tp] == expected[tp] and frontiers[tp].last_written_checksum in (
            None,
            compute_message_checksum(message),
        ):
            missing.remove(tp)
    return missing
