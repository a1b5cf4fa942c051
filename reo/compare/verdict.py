"""The verdict of `reo verify`: what all comparisons together prove, and what they leave out, since
only what was compared is called exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from common.errors import CopyDiffers, LagsBehind, NothingCompared, ReoError
from common.frontier import Frontier
from common.kafka.topics import Topic
from common.route_states import RouteState, describe_halted
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
        if self.partition is None:
            return f"{self.topic}: {self.text}"
        return f"{TopicPartition(self.topic, self.partition)}: {self.text}"


def list_for_partition(result: Comparison) -> Iterator[NotCompared]:
    """What the comparison of one partition leaves out."""
    if result.starts_late:
        before = "the source's first record, which were deleted there"
        if result.common_start:
            before = "source offset {} and destination offset {}".format(*result.common_start)
        yield NotCompared("beginning", *result.tp, f"the records before {before}")
    if result.by_key:
        text = "all but the newest record of each key, the order of different keys, and offsets"
        yield NotCompared("compaction", *result.tp, f"{text} (compacted)")


def list_for_moved(frontiers: Mapping[TopicPartition, Frontier]) -> Iterator[NotCompared]:
    """What others write at the destination after a move; `frontiers` is by source partition."""
    for tp, frontier in frontiers.items():
        yield NotCompared("move", *tp, f"what others write there since: {frontier.describe_move()}")


def list_for_topics(
    sources: Mapping[Route, Topic], partitions: Mapping[str, int]
) -> Iterator[NotCompared]:
    """Destination partitions to which the service copies no source partition; `partitions`: how
    many each destination topic has.
    """
    for route, source in sources.items():
        name, total = route.destination_topic, source.total_partitions
        text = f"the rule has {route.partitions}" if source.other_partitions else ""
        copied = range(route.partitions.first, route.partitions.first + source.partitions)
        for first, last in ((0, copied.start - 1), (copied.stop, partitions[name] - 1)):
            if first <= last:
                which = f"partition {last}" if first == last else f"partitions {first} to {last}"
                why = text or f"the source has {total}"
                yield NotCompared("partitions", name, None, f"{which} of the destination: {why}")


class Verdict(NamedTuple):
    """The result of all comparisons."""

    results: Sequence[Comparison]
    not_comparable: Sequence[ReoError]
    """Why routes cannot be compared; that of a copy that does not exist comes first."""
    not_compared: Sequence[NotCompared]
    compared_before: int
    """Records that an earlier comparison found equal (`--resume`)."""
    took_s: float
    halted: Mapping[str, RouteState] = MappingProxyType({})
    """By source topic: the routes that lack records, and get none until they are resumed."""

    @property
    def records(self) -> int:
        """How many records were compared, now and before."""
        return sum(result.equal for result in self.results)

    @property
    def not_copied(self) -> int:
        """How many records are after the frontiers."""
        return sum(result.not_copied for result in self.results)

    @property
    def exit_code(self) -> int:
        """A difference comes first, then what cannot be compared, then what is not copied yet, then
        nothing to compare.
        """
        if any(result.difference for result in self.results):
            return CopyDiffers.exit_code
        if self.not_comparable:
            return self.not_comparable[0].exit_code
        if self.not_copied:
            return LagsBehind.exit_code
        return 0 if self.records else NothingCompared.exit_code

    @property
    def nothing_compared(self) -> NothingCompared | None:
        """The error when nothing was compared."""
        if self.exit_code != NothingCompared.exit_code:
            return None
        return NothingCompared(
            "there was no record to compare, so nothing is proved: the source has no records, or"
            " none any more. Verify again when it has some"
            if self.results
            else "no source topic matches what is to be copied, so nothing was compared and nothing"
            " is proved. Correct source.topic or topics, or verify again when there is such a topic"
        )

    def __str__(self) -> str:
        differing = sum(bool(result.difference) for result in self.results)
        if differing:
            verdict = f"{differing} of {len(self.results)} partitions differ"
        elif not self.records:
            verdict = "nothing is proved"
        else:
            verdict = "exact in what was compared" if self.not_compared else "exact"
        if self.not_copied:
            to_do = "let the copy catch up, or use --wait 60"
            if self.halted:
                names = " ".join(sorted(self.halted))
                to_do = f"{describe_halted(self.halted)}. To go on: reo resume {names}"
            verdict += f"; {self.not_copied} records are not copied yet: {to_do}"
        if self.not_comparable:
            verdict += f"; {len(self.not_comparable)} routes cannot be compared"
        before = (
            f" ({self.compared_before} more were compared before)" if self.compared_before else ""
        )
        compared = f"{self.records - self.compared_before} records compared in {self.took_s:.1f} s"
        left_out = [f"    {part}" for part in self.not_compared]
        return "\n".join(
            [
                *map(str, self.results),
                *(["not compared:", *left_out] if left_out else []),
                f"{compared}{before}: {verdict}",
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "exit_code": self.exit_code,
            "verdict": (
                "differs"
                if self.exit_code == CopyDiffers.exit_code
                else "not copied yet"
                if self.not_copied
                else "exact"
                if self.records
                else "nothing compared"
            ),
            "records": self.records,
            "not_copied": self.not_copied,
            "compared_before": self.compared_before,
            "seconds": round(self.took_s, 3),
            "partitions": [result.to_dict() for result in self.results],
            "not_compared": [part._asdict() for part in self.not_compared],
            "not_comparable": list(map(str, self.not_comparable)),
        }
