"""Where the partitions of topics end at the source, and whether somebody writes to them: `reo
cutover` waits until nobody does, and later checks that nobody has.
"""

from __future__ import annotations

from confluent_kafka.admin import AdminClient

from common.kafka import partition_offsets, topics
from common.routes import TopicPartition
from common.settings import Settings

Ends = dict[TopicPartition, int]
"""By source partition."""


class SourceEnds:
    """The ends of all partitions of the topics of these settings."""

    def __init__(self, settings: Settings, client: AdminClient) -> None:
        self.settings = settings
        self.client = client

    def read(self) -> Ends:
        """The end of every partition."""
        sources = topics.describe_sources(self.settings, self.client)
        topic_partitions = [
            route.get_source(partition)
            for route, source in sources.items()
            for partition in range(source.partitions)
        ]
        return partition_offsets.list_end_offsets(self.client, topic_partitions)

    def find_open(self, ends: Ends) -> list[TopicPartition]:
        """The partitions that have an open transaction."""
        return sorted(partition_offsets.find_open_transactions(self.client, ends))

    def find_written(self, ends: Ends) -> list[TopicPartition]:
        """The partitions whose end has moved, or that have an open transaction."""
        current_ends = self.read()
        moved = {tp for tp, end in current_ends.items() if end != ends.get(tp)}
        return sorted(moved.union(self.find_open(current_ends)))


def list_topics(ends: Ends) -> str:
    """The topics, for people."""
    return ", ".join(sorted({tp.topic for tp in ends}))
