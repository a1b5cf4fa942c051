"""What a comparison could not see, in words and for programs: "exact" is said of what was compared, and of nothing else.

Records that retention took, or that came before the copy began, have no counterpart; of a compacted partition only the newest record of each key is
compared; and a partition that the destination has beyond the source's is not the copy of anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from common.errors import NothingCompared
from common.routes import Place, Route
from common.topics import Topic
from reo.comparison import Comparison


class Unseen(NamedTuple):
    """One thing; `partition` is None where it is said of a whole topic, which is the destination's then."""

    what: Literal["beginning", "compaction", "partitions"]
    topic: str
    partition: int | None
    text: str

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return self._asdict()

    def __str__(self) -> str:
        """In words."""
        return f"{self.topic if self.partition is None else Place(self.topic, self.partition)}: {self.text}"


def of_partition(result: Comparison) -> Iterator[Unseen]:
    """What the comparison of one partition left out."""
    if result.cut:
        before = ("the source's first record, which were deleted there" if result.begun is None
                  else f"source offset {result.begun[0]} and destination offset {result.begun[1]}")
        yield Unseen("beginning", *result.place, f"the records before {before}")
    if result.by_key:
        yield Unseen("compaction", *result.place, "all but the newest record of each key, the order of different keys, and places (compacted)")


def of_topics(sources: Mapping[Route, Topic], partitions: Mapping[str, int]) -> Iterator[Unseen]:
    """Partitions of the destination that no source partition leads to; `partitions`: how many each destination topic has."""
    for route, source in sources.items():
        more = partitions[route.destination_topic] - source.partitions
        if more > 0:
            last = partitions[route.destination_topic] - 1
            which = f"partition {last}" if more == 1 else f"partitions {source.partitions} to {last}"
            yield Unseen("partitions", route.destination_topic, None, f"{which} of the destination: the source has {source.partitions}")


def nothing(compared: bool) -> NothingCompared:
    """The error; `compared`: whether there were partitions to compare."""
    if not compared:
        return NothingCompared("no source topic fits what is to be copied, so nothing was compared and nothing is shown: correct source.topic or topics, "
                               "or verify again when there is one")
    return NothingCompared("there was no record to compare, so nothing is shown: the source has none, or none any more. Verify again when there are some")
