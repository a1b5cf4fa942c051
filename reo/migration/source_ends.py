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

    def read(self, committed_only: bool = False) -> Ends:
        """The end of every partition; with `committed_only` the offset at which its first open
        transaction begins.
        """
        sources = topics.describe_sources(self.settings, self.client)
        topic_partitions = [
            route.get_source(partition)
            for route, source in sources.items()
            for partition in range(source.partitions)
        ]
        return partition_offsets.list_end_offsets(self.client, topic_partitions, committed_only)

    def find_written(self, ends: Ends) -> list[TopicPartition]:
        """The partitions whose end has moved, or that have an open transaction."""
        current_ends, stable_ends = self.read(), self.read(committed_only=True)
        return sorted(
            tp for tp, end in current_ends.items() if end != ends.get(tp) or stable_ends[tp] < end
        )


def list_topics(ends: Ends) -> str:
    """The topics, for people."""
    return ", ".join(sorted({tp.topic for tp in ends}))
