"""Open holes of a run: source offsets that are missing on the intermediate topic, after which stage
two accepts nothing.

A retry inside Spark fills a hole; one that stays as it is ends the run, and the next one begins at
the frontier.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from common.kafka.partition_offsets import GroupCommit
from common.routes import TopicPartition

HOLE_S = 5.0
"""How long a hole may stay unchanged: a retry inside Spark would have begun to fill it by then."""


@dataclass(slots=True)
class OpenHoles:
    """Those of the run with this epoch."""

    epoch: int
    hole_since: dict[TopicPartition, tuple[int, float]] = field(default_factory=dict)
    """Partitions with an open hole of this run: its first source offset, and since when it is
    open.
    """

    def note_hole(
        self, tp: TopicPartition, commit: GroupCommit, end: int, written_up_to: int, now: float
    ) -> None:
        """Note since when a hole is open. Stage two's commit says so, whatever is still to be read
        after the hole; the first offset of one being filled moves.

        A hole is also open when stage two has read everything and its frontier is below what was
        written: the intermediate topic lost its newest records. `end` is the end of the
        intermediate partition, `written_up_to` the highest source offset that this run has written.
        """
        rule, first = commit.frontier.rule, -1
        if rule.hole is not None and rule.epoch == self.epoch:
            first = rule.hole.first
        elif commit.intermediate_offset >= end and rule.frontier < written_up_to:
            first = rule.frontier + 1
        if first < 0:
            self.hole_since.pop(tp, None)
        elif tp not in self.hole_since or self.hole_since[tp][0] != first:
            self.hole_since[tp] = first, now

    def has_unfilled(self, now: float) -> bool:
        """Whether a hole has stayed unchanged for too long."""
        return any(now - since > HOLE_S for _, since in self.hole_since.values())
