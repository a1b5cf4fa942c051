"""What a comparison leaves out, for people and for programs: "exact" is said only of what was
compared.

Records that retention deleted, or that came before the copy began, have no counterpart. Of a
compacted partition only the newest record of each key is compared. A partition that the destination
has beyond the source's is not a copy of anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from common.errors import NothingCompared
from common.frontier import Frontier
from common.kafka.topics import Topic
from common.routes import Route, TopicPartition
from reo.compare.comparison import Comparison


class NotCompared(NamedTuple):
    """One part that is left out; `partition` is None for a whole topic, which is the destination's
    then.
    """

    what: Literal["beginning", "compaction", "partitions", "move"]
    topic: str
    partition: int | None
    text: str

    def __str__(self) -> str:
        """As text for a person."""
        if self.partition is None:
            return f"{self.topic}: {self.text}"
        return f"{TopicPartition(self.topic, self.partition)}: {self.text}"


def list_for_partition(result: Comparison) -> Iterator[NotCompared]:
    """What the comparison of one partition leaves out."""
    if result.starts_late:
        before = (
            "the source's first record, which were deleted there"
            if result.common_start is None
            else (
                f"source offset {result.common_start[0]} and destination offset"
                f" {result.common_start[1]}"
            )
        )
        yield NotCompared("beginning", *result.tp, f"the records before {before}")
    if result.by_key:
        yield NotCompared(
            "compaction",
            *result.tp,
            "all but the newest record of each key, the order of different keys, and offsets"
            " (compacted)",
        )


def list_for_moved(frontiers: Mapping[TopicPartition, Frontier]) -> Iterator[NotCompared]:
    """What others write at the destination after a move; `frontiers` is by source partition."""
    for tp, frontier in frontiers.items():
        yield NotCompared("move", *tp, f"what others write there since: {frontier.describe_move()}")


def list_for_topics(
    sources: Mapping[Route, Topic], partitions: Mapping[str, int]
) -> Iterator[NotCompared]:
    """Destination partitions to which no source partition is copied; `partitions`: how many each
    destination topic has.
    """
    for route, source in sources.items():
        more = partitions[route.destination_topic] - source.partitions
        if more > 0:
            last = partitions[route.destination_topic] - 1
            which = (
                f"partition {last}" if more == 1 else f"partitions {source.partitions} to {last}"
            )
            yield NotCompared(
                "partitions",
                route.destination_topic,
                None,
                f"{which} of the destination: the source has {source.partitions}",
            )


def build_nothing_compared_error(has_partitions: bool) -> NothingCompared:
    """The error; `has_partitions`: whether there were partitions to compare."""
    if not has_partitions:
        return NothingCompared(
            "no source topic matches what is to be copied, so nothing was compared and nothing is"
            " proved. Correct source.topic or topics, or verify again when there is such a topic"
        )
    return NothingCompared(
        "there was no record to compare, so nothing is proved: the source has no records, or none"
        " any more. Verify again when it has some"
    )
