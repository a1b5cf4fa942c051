"""What is copied where: one source topic, one intermediate topic, one destination topic make a route.

Whatever a service remembers or measures belongs to one partition of one topic, its `Place`. Partition p of the source and partition p of
the intermediate topic of a route are the same stream of records, so each of the two places tells the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Place(NamedTuple):
    """One partition of one topic; which cluster's is said by the name of what holds it."""

    topic: str
    partition: int

    def __repr__(self) -> str:
        """As Kafka's own tools and logs call it; also what `str` says."""
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Route:
    """From one source topic over an intermediate topic of its own to a destination topic."""

    source_topic: str
    destination_topic: str
    intermediate_topic: str

    def source(self, partition: int) -> Place:
        """The place at the source."""
        return Place(self.source_topic, partition)

    def intermediate(self, partition: int) -> Place:
        """The place between the stages."""
        return Place(self.intermediate_topic, partition)

    def destination(self, partition: int) -> Place:
        """The place at the destination."""
        return Place(self.destination_topic, partition)
