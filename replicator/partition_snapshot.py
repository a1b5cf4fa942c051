"""What a snapshot of a run has of one partition: the answers of both clusters
(`replicator.cluster_snapshot` asks them), and what is remembered of the snapshots before. Pure.

How far a run is, the group's frontier tells. Offsets of the source do not tell whether anything is
left to copy, since they count markers and aborted records too. So where a partition stands still,
its first visible record after the frontier is looked for, and that none was found is remembered.

What was found empty is believed while the source is certainly the one that was looked at: while all
snapshots since the one before the look have the same leader epoch, and none of them is late.
Otherwise it is forgotten: a new leader may lack what the one before it had, and have other records
at the same offsets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from common.kafka.partition_offsets import EndOffset, GroupCommit
from common.routes import TopicPartition


class OpenGap(NamedTuple):
    """A gap at stage two."""

    frontier: int
    up_to: int
    """As `Frontier.gap`."""
    since_s: float
    """Since when neither has changed."""


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """One partition. Offsets are source offsets unless their name says otherwise."""

    source: TopicPartition
    commit: GroupCommit | None
    """None while the group does not answer, or has none."""
    intermediate_end: int | None
    """The end offset of the intermediate partition; None when its topic is gone."""
    source_beginning: int
    source_end: EndOffset
    """The last stable offset: up to this one the source can be read."""
    source_high_watermark: int
    """Between the last stable offset and this one are records of open transactions."""
    next_offset: int
    """The offset after the frontier, as last known."""
    # what is remembered, in seconds of the monotonic clock
    progressed_at_s: float
    """When the frontier or the intermediate partition's end has moved, or nothing waited for stage
    one, for the last time; before that, when the run began.
    """
    has_progressed: bool = False
    """Whether that was so since the run began."""
    empty_up_to: int = 0
    """From the frontier on, no visible record is below this offset; 0 when that is not known."""
    gap: OpenGap | None = None
    blocked_since_s: float | None = None
    """Since when the last stable offset stays below the high watermark; None when it is not."""
    is_purged: bool = False
    """Whether nothing is left on the intermediate partition, although stage two has not read up to
    its end: then its position does not move.
    """

    @property
    def has_stage_two_read_all(self) -> bool:
        """Whether stage two has read everything that is on the intermediate topic."""
        return (
            self.commit is not None
            and self.intermediate_end is not None
            and (self.is_purged or self.commit.intermediate_offset >= self.intermediate_end)
        )

    @property
    def is_deleted_uncopied(self) -> bool:
        """Whether the source has deleted offsets after the frontier that were not found empty."""
        return self.source_beginning > max(self.next_offset, self.empty_up_to)

    @property
    def lag(self) -> int:
        """The number of offsets still to be copied; 0 when only markers and aborted records are
        left.
        """
        is_empty = self.empty_up_to >= self.source_end.offset and not self.is_deleted_uncopied
        return 0 if is_empty else max(0, self.source_end.offset - self.next_offset)

    @property
    def is_waiting_for_stage_one(self) -> bool:
        """Whether stage two has nothing to do, and the source has something to copy."""
        return self.has_stage_two_read_all and (self.lag > 0 or self.is_deleted_uncopied)


def remember(
    before: PartitionSnapshot | None,
    now: PartitionSnapshot,
    found_empty: int | None,
) -> PartitionSnapshot:
    """The snapshot with what has to be remembered of the one before; it was taken at its
    `progressed_at_s`. Pure.

    `found_empty`: up to which offset nothing visible was found between the two snapshots, or 0;
    None when this one is late.
    """
    now_s = now.progressed_at_s
    now = replace(
        now,
        gap=_find_gap(before.gap if before else None, now, now_s),
        blocked_since_s=_find_blocked_since(before, now, now_s),
    )
    if before is None:
        return replace(now, has_progressed=not now.is_waiting_for_stage_one)
    now = replace(now, empty_up_to=_find_empty_up_to(before, now, found_empty))
    has_moved = (now.next_offset, now.intermediate_end) != (
        before.next_offset,
        before.intermediate_end,
    )
    if has_moved or not now.is_waiting_for_stage_one:
        return replace(now, has_progressed=True)
    return replace(
        now, has_progressed=before.has_progressed, progressed_at_s=before.progressed_at_s
    )


def _find_gap(gap_before: OpenGap | None, now: PartitionSnapshot, now_s: float) -> OpenGap | None:
    """The gap that is open at stage two. It is of this run: another epoch ends it."""
    if now.commit is None:
        return gap_before
    frontier = now.commit.frontier
    if frontier.gap is None:
        return None
    gap = OpenGap(frontier.source_offset, frontier.gap, now_s)
    return gap_before if gap_before is not None and gap_before[:2] == gap[:2] else gap


def _find_blocked_since(
    before: PartitionSnapshot | None, now: PartitionSnapshot, now_s: float
) -> float | None:
    """Since when an open transaction blocks the source partition at this offset."""
    if now.source_high_watermark <= now.source_end.offset:
        return None
    is_same = before is not None and before.source_end.offset == now.source_end.offset
    since_s = before.blocked_since_s if before is not None and is_same else None
    return now_s if since_s is None else since_s


def _find_empty_up_to(
    before: PartitionSnapshot, now: PartitionSnapshot, found_empty: int | None
) -> int:
    """Up to which offset nothing visible follows the frontier, as far as that is certain."""
    if (
        found_empty is None
        or now.next_offset < before.next_offset
        or now.source_end.leader_epoch != before.source_end.leader_epoch
    ):
        return 0
    # what was deleted before it was looked at was not found empty
    is_read_whole = now.source_beginning <= max(before.next_offset, before.empty_up_to)
    end = max(before.empty_up_to, found_empty if is_read_whole else 0)
    return end if end <= now.source_end.offset else 0
