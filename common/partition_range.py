"""The partitions of a source topic that a service copies, where several services divide a topic:
`orders[0-499]` is one part of it, `orders[500-]` the other, also of partitions that are added.

Two services that copied the same partition would both write to the same partition of the
destination. So a range stands in the name of the intermediate topic, where the start of every other
service finds it (`common.kafka.topic_fitness.find_overlaps`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

RULE = re.compile(r"([^^].*)\[(\d+)-(\d*)\]")
INTERMEDIATE = re.compile(r"-proxy(?:-(\d+)-to-(\d+)|-from-(\d+))?")


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """From `first` to `last`, both included; without `last` all from `first` on."""

    first: int = 0
    last: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it has every partition of any topic."""
        return not self.first and self.last is None

    def __contains__(self, partition: int) -> bool:
        """Whether it has this partition."""
        return self.first <= partition and (self.last is None or partition <= self.last)

    def count_in(self, partitions: int) -> int:
        """How many of a topic's partitions are in it."""
        end = partitions if self.last is None else min(partitions, self.last + 1)
        return max(0, end - self.first)

    def fits(self, partitions: int) -> bool:
        """Whether a topic with so many partitions has its first and its last one."""
        return partitions > max(self.first, self.last or 0)

    def overlaps(self, other: PartitionRange) -> bool:
        """Whether a partition can be in both."""
        return (other.last is None or self.first <= other.last) and (
            self.last is None or other.first <= self.last
        )

    def build_intermediate_topic(self, base: str) -> str:
        """The default name of the intermediate topic. One with a range never ends in `-proxy`, so
        it is not the default name for any other destination topic.
        """
        if self.is_whole:
            return f"{base}-proxy"
        to = f"from-{self.first}" if self.last is None else f"{self.first}-to-{self.last}"
        return f"{base}-proxy-{to}"

    def __str__(self) -> str:
        """As a rule has it, behind the name of the topic."""
        if self.is_whole:
            return ""
        return f"[{self.first}-{'' if self.last is None else self.last}]"


WHOLE = PartitionRange()


def parse_rule(text: str) -> tuple[str, PartitionRange]:
    """The topic and the range of a rule's left side; brackets in a pattern are a set of characters,
    as in Python's `re`.
    """
    match = RULE.fullmatch(text)
    if match is None:
        return text, WHOLE
    name, first, last = match.groups()
    return name, PartitionRange(int(first), int(last) if last else None)


def parse_intermediate_topic(name: str, destination_topic: str) -> PartitionRange | None:
    """What the default name of an intermediate topic says; None for other names."""
    match = name.startswith(destination_topic) and INTERMEDIATE.fullmatch(
        name, len(destination_topic)
    )
    if not match:
        return None
    first, last, begin = match.groups()
    return PartitionRange(int(begin or first or 0), int(last) if last else None)
