"""Routes: one source topic, one intermediate topic and one destination topic.

Everything that a service stores or measures belongs to one partition of one topic, a
`TopicPartition` (in variables: `tp`, as Kafka's own code has it). A partition of the source and one
of the intermediate topic of a route are the same stream of records, so each of the two determines
the other: partition p is p in both, or, of a route with a range, `first` + p at the source. Only
`Route` knows that. A bare number of a partition of a route is that of the intermediate topic, and
`Topic.partitions` of its source topic says how many there are.

Settings hold rules (`common.topic_rules`), of which one leads to one route or, with a pattern, to
many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from common.partition_range import WHOLE, PartitionRange

SAME = "same"
NAMES_SHOWN = 8


class TopicPartition(NamedTuple):
    """One partition of one topic; the name of the variable tells the cluster."""

    topic: str
    partition: int

    def __repr__(self) -> str:
        """As Kafka's own tools and logs call it; also what `str` says."""
        return f"{self.topic}-{self.partition}"


def name_some(things: Sequence[object]) -> str:
    """The first of them, and how many more there are: a topic may have thousands of partitions."""
    more = len(things) - NAMES_SHOWN
    names = ", ".join(str(thing) for thing in things[:NAMES_SHOWN])
    return names + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True, slots=True)
class Route:
    """From one source topic, by an intermediate topic of its own, to a destination topic."""

    source_topic: str
    destination_topic: str
    intermediate_topic: str
    mapping: str = SAME
    """To which partition a record goes (`common.partition_mapping`)."""
    shared: bool = False
    """Whether other routes may lead to the same destination topic."""
    partitions: PartitionRange = WHOLE
    """Of the source topic. Only a route that is one to one has less than all."""

    @property
    def is_one_to_one(self) -> bool:
        """Whether a destination partition has exactly its source's records: comparable."""
        return self.mapping == SAME and not self.shared

    @property
    def parked_topic(self) -> str:
        """Where records go that `filter.function` fails on (`park`); it has one partition."""
        return f"{self.destination_topic}-parked"

    def get_source(self, partition: int) -> TopicPartition:
        """The partition at the source."""
        return TopicPartition(self.source_topic, self.partitions.first + partition)

    def get_intermediate(self, partition: int) -> TopicPartition:
        """The partition of the intermediate topic."""
        return TopicPartition(self.intermediate_topic, partition)

    def get_destination(self, partition: int) -> TopicPartition:
        """The partition at the destination, of a route that is one to one."""
        return TopicPartition(self.destination_topic, self.partitions.first + partition)

    def find_destination(self, source: TopicPartition) -> TopicPartition:
        """The partition at the destination for one of the source, of a route that is one to one."""
        return TopicPartition(self.destination_topic, source.partition)

    def find_intermediate(self, source: TopicPartition) -> TopicPartition:
        """The partition of the intermediate topic for one of the source."""
        return self.get_intermediate(source.partition - self.partitions.first)

    def __str__(self) -> str:
        """For messages."""
        return (
            f"{self.source_topic}{self.partitions} →"
            f" {self.destination_topic}{'' if self.mapping == SAME else ':' + self.mapping}"
        )
