"""How far one partition is, as offsets and as lags, and how that follows from what was read.

Lag in records is counted in offsets: markers and aborted records between visible ones are included;
what is after the last visible record is not, unless an open transaction of the source holds it
back. Lag in seconds is how long the first waiting record has been there, by its own timestamp at
the source, so old records lag by their age; it is unknown when all that waits is after an open
transaction. Stage two's lag in seconds is how long the first envelope that it has not read has been
on the intermediate topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from common.envelope import Head
from common.frontier import Frontier, Move
from common.kafka.partition_offsets import GroupCommit
from common.records import Consumed
from common.routes import TopicPartition


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
    stage_one_lag: Lag
    stage_two_lag: Lag
    copy_lag: Lag
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

    @property
    def move(self) -> Move | None:
        """That it has moved to the destination."""
        return self.frontier.move if self.frontier else None

    @property
    def lags(self) -> tuple[Lag, Lag, Lag]:
        """Of stage one, of stage two, and of the copy."""
        return self.stage_one_lag, self.stage_two_lag, self.copy_lag


@dataclass(frozen=True, slots=True)
class Readings:
    """What was read of all partitions at one moment."""

    taken_at_ms: float
    """Since 1970."""
    # by source partition
    ends: Mapping[TopicPartition, int]
    stable_ends: Mapping[TopicPartition, int]
    """Where the first open transaction begins."""
    written: Mapping[TopicPartition, int]
    """The source offset that stage one writes next."""
    copied: Mapping[TopicPartition, int]
    """The source offset that stage two copies next."""
    first_not_written: Mapping[TopicPartition, Consumed | None]
    """Only of partitions of which stage one has written what is not copied."""
    first_not_copied: Mapping[TopicPartition, Consumed | None]
    # by intermediate partition
    commits: Mapping[TopicPartition, GroupCommit]
    intermediate_begins: Mapping[TopicPartition, int]
    intermediate_ends: Mapping[TopicPartition, int]
    newest: Mapping[TopicPartition, Consumed | None]
    heads: Mapping[TopicPartition, Head]
    """Of the newest records; one of the old format has none."""
    first_not_consumed: Mapping[TopicPartition, Consumed | None]

    def find_progress(self, source: TopicPartition, tp: TopicPartition) -> PartitionProgress:
        """The progress of a source partition with this intermediate partition."""
        commit = self.commits.get(tp)
        frontier = commit.frontier if commit else None
        end, last = self.ends[source], self.newest.get(tp)
        written, copied = self.written[source], self.copied[source]
        held_back = end - self.stable_ends[source]
        head = self.heads.get(tp)
        first_for_stage_one = (
            self.first_not_written if written > copied else self.first_not_copied
        ).get(source)
        return PartitionProgress(
            source,
            tp,
            end,
            self.stable_ends[source],
            written,
            copied,
            frontier,
            stage_one_lag=_measure_lag(
                end - written, first_for_stage_one, self.taken_at_ms, held_back
            ),
            stage_two_lag=_measure_lag(
                written - copied, self.first_not_consumed.get(tp), self.taken_at_ms
            ),
            copy_lag=_measure_lag(
                end - copied, self.first_not_copied.get(source), self.taken_at_ms, held_back
            ),
            last_written_ms=last.timestamp()[1] if last else None,
            epoch=max(head.epoch if head else 0, frontier.epoch if frontier else 0),
            unread=self._count_unread(tp, commit) if commit else 0,
            is_run_waiting=bool(
                head and frontier and head.after == head.through and head.epoch > frontier.epoch
            ),
        )

    def find_open_at_source(self) -> dict[TopicPartition, int]:
        """By source partition with open transactions: the offset at which the first one begins."""
        return {
            source: offset
            for source, offset in self.stable_ends.items()
            if offset < self.ends[source]
        }

    def _count_unread(self, tp: TopicPartition, commit: GroupCommit) -> int:
        begin, end = self.intermediate_begins[tp], self.intermediate_ends[tp]
        # a position that is gone is the beginning of what is there now
        position = commit.intermediate_offset
        return end - (position if begin <= position <= end else begin)


def _measure_lag(offsets: int, first: Consumed | None, now_ms: float, held_back: int = 0) -> Lag:
    """No lag when no visible record waits, whatever the offsets are, except for offsets that an
    open transaction holds back, for an unknown time.
    """
    if offsets <= 0:
        return Lag()
    if first is None:
        return Lag(min(offsets, held_back), None) if held_back > 0 else Lag()
    written_ms = first.timestamp()[1]
    return Lag(offsets, max(0.0, (now_ms - written_ms) / 1000) if written_ms >= 0 else None)


def sum_lag(lags: list[Lag]) -> Lag:
    """Of several partitions: the sum of the records, and the longest known time."""
    longest = max((lag.seconds for lag in lags if lag.seconds is not None), default=0.0)
    unknown = any(lag.seconds is None for lag in lags)
    return Lag(sum(lag.records for lag in lags), None if unknown and not longest else longest)
