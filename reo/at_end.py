"""`reo run deduplicator --stop-at-end`: when has stage two, running alone, copied what there was?

With stage one in the same service, stage one knows: it holds the frontier against the source. Alone, the measure is the
intermediate topic: what it had at the start is behind the group's committed offsets.
"""

from __future__ import annotations

import time

from common import positions, topics
from common.errors import ClusterUnreachable, HangingTransaction
from common.kafka_clients import admin, reader
from common.settings import Settings

EVERY_S = 0.5


class AtEnd:
    """The ends of the intermediate topic at the start, and whether they are reached."""

    def __init__(self, settings: Settings, source: topics.Topic) -> None:
        self.topic = settings.intermediate_topic
        self.reader = reader(settings.destination, settings)
        self.ends = positions.ends(admin(settings.destination, settings), self.topic, range(source.partitions))
        self.due = 0.0

    def reached(self) -> bool:
        """Whether everything is committed; asks now and then."""
        if time.monotonic() < self.due:
            return False
        self.due = time.monotonic() + EVERY_S
        try:
            commits = positions.committed(self.reader, self.topic, self.ends, EVERY_S)
        except (ClusterUnreachable, HangingTransaction):
            return False
        return all(partition in commits and commits[partition].intermediate_offset >= end for partition, end in self.ends.items())
