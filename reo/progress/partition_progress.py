"""How far one partition is, as offsets and as lags.
Lag in records is counted in offsets: markers and aborted records between visible ones are included;
what is after the last visible record is not, unless an open transaction of the source holds it
back. Lag in seconds is how long the first waiting record has been there, by its own timestamp at
the source, so old records lag by their age; it is unknown when all that waits is after an open
transaction. Stage two's lag in seconds is how long the first envelope that it has not read has been
on the intermediate topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from common.frontier import Frontier, Move
from common.records import Consumed
from common.routes import TopicPartition, name_some


class Lag(NamedTuple):
    """How many records wait, and for how long the first one; `seconds` is None when its timestamp
    is not known.
    """

    records: int = 0
    seconds: float | None = 0.0

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "records": self.records,
            "seconds": None if self.seconds is None else round(self.seconds, 3),
        }


class Lags(NamedTuple):
    """The lag of stage one, of stage two, and of the copy."""

    stage_one: Lag = Lag()
    stage_two: Lag = Lag()
    both: Lag = Lag()

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return {name: lag.to_dict() for name, lag in self._asdict().items()}

    def list_cells(self) -> list[str]:
        """Records and seconds of each, as text for a person."""
        return [
            cell
            for lag in self
            for cell in (str(lag.records), "?" if lag.seconds is None else f"{lag.seconds:.1f}")
        ]


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """One partition at one moment. Offsets are source offsets."""

    source: TopicPartition
    intermediate: TopicPartition
    source_end: int
    """The high watermark."""
    last_stable_offset: int
    """Of the source partition: where its first open transaction begins, else the high watermark."""
    stage_one_offset: int
    """The source offset that stage one writes next."""
    stage_two_offset: int
    """The source offset that stage two copies next."""
    frontier: Frontier | None
    """None when stage two has not begun with this partition."""
    lags: Lags
    last_written_ms: int | None
    """When stage one wrote the newest record on the intermediate topic, in ms since 1970; None when
    there is no record.
    """
    epoch: int
    """Of the newest run that is visible; 0 when there is none."""
    unread: int
    """How many records of the intermediate topic stage two has not read."""
    is_run_waiting: bool
    """Whether the newest run has written its epoch, and not begun: it waits until stage two has
    read the intermediate partition.
    """
    gone_topic: str = ""
    """The destination topic that its frontier was of, if it was deleted, or recreated since: such a
    frontier is not used, and all is copied again.
    """

    @property
    def move(self) -> Move | None:
        """That it has moved to the destination."""
        return self.frontier.move if self.frontier else None


def describe_gone(partitions: Iterable[PartitionProgress]) -> str:
    """Which destination topics are gone, as text; empty when none is."""
    names = name_some(sorted({row.gone_topic for row in partitions} - {""}))
    return names and f"{names}: deleted at the destination, or recreated, since it was copied to"


def measure_lag(offsets: int, first: Consumed | None, now_ms: float, held_back: int = 0) -> Lag:
    """The lag of so many offsets, with `first` as the first visible record that waits. Without such
    a record there is no lag, whatever the offsets are, except for offsets that an open transaction
    holds back, for an unknown time.
    """
    if offsets <= 0:
        return Lag()
    if first is None:
        return Lag(min(offsets, held_back), None) if held_back > 0 else Lag()
    written_ms = first.timestamp()[1]
    return Lag(offsets, max(0.0, (now_ms - written_ms) / 1000) if written_ms >= 0 else None)


def sum_lags(partitions: Iterable[PartitionProgress]) -> Lags:
    """Of several partitions: the sum of the records, and the longest known time."""
    return Lags(*map(_sum_lag, zip(*(row.lags for row in partitions), strict=True)))


def _sum_lag(lags: Sequence[Lag]) -> Lag:
    longest = max((lag.seconds for lag in lags if lag.seconds is not None), default=0.0)
    unknown = any(lag.seconds is None for lag in lags)
    return Lag(sum(lag.records for lag in lags), None if unknown and not longest else longest)
