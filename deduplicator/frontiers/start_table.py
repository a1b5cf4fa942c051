"""What a start finds of a partition, and what it decides: two tables.

Rows are tried in their order, and the first that holds decides. So a condition rests on those
before it, and what a cluster has to be asked is asked only when no row before it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, TypeVar

if TYPE_CHECKING:
    from deduplicator.frontiers.found_partition import FoundPartition

Decided = TypeVar("Decided", bound=str)


class Row(NamedTuple, Generic[Decided]):
    """One row."""

    found: str
    holds: Callable[[FoundPartition], object]
    decided: Decided


Decision = Literal["continue", "commit again", "begin", "ask again", "refuse"]
START: tuple[Row[Decision], ...] = (
    Row("a frontier of a topic that has moved", lambda it: it.frontier and it.has_moved, "refuse"),
    Row(
        "a frontier that the group has lost", lambda it: it.frontier and it.is_lost, "commit again"
    ),
    Row("a frontier", lambda it: it.frontier, "continue"),
    # also where there is a frontier of another destination topic, which is gone
    Row("no records", lambda it: it.filled is None, "begin"),
    Row("records of a worker that has begun since", lambda it: it.has_begun_since, "ask again"),
    Row("records to append to", lambda it: it.may_append, "begin"),
    Row("records of other sources", lambda it: it.is_from_other_sources, "begin"),
    Row("records that may be its own", lambda _: True, "refuse"),
)
"""How the copy of a partition goes on. Where there is a frontier, and its route is one to one, the
destination's records are compared with it as well (`deduplicator.frontiers.frontier_check`).
"""

Beginning = Literal["source.start", "first record"]
BEGINNING: tuple[Row[Beginning], ...] = (
    Row("another start than latest", lambda it: not it.starts_at_latest, "source.start"),
    Row("a partition that the source had not then", lambda it: it.is_added, "first record"),
    Row("a destination that was recreated", lambda it: it.commit, "first record"),
    Row("a topic that appeared since", lambda it: it.is_new_topic, "first record"),
    Row("records to append to", lambda it: it.may_append and it.filled, "source.start"),
    Row("frontiers of other topics", lambda it: it.has_other_topics, "first record"),
    # with frontiers of its own topic alone it can be the first start, as long as no run has begun
    Row("a copied topic", lambda it: it.topic_frontiers and it.is_written, "first record"),
    Row("lost frontiers", lambda it: it.is_started and not it.topic_frontiers, "first record"),
    Row("whatever others have copied", lambda it: it.may_append, "source.start"),
    Row("envelopes of its topic", lambda it: it.is_written, "first record"),
    Row("copies of its topic", lambda it: it.has_copies, "first record"),
    Row("the first start", lambda _: True, "source.start"),
)
"""Where a copy begins. `latest` must leave out nothing that the source got after the service had
begun to copy, nor after a frontier that was lost.
"""


def find_row(table: Sequence[Row[Decided]], found: FoundPartition) -> Row[Decided]:
    """The first row that holds."""
    return next(row for row in table if row.holds(found))
