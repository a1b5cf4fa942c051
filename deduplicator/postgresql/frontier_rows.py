"""The rows of `reo_frontier`, and the statements that read them, take them over and move them.

A partition's position is a row: the next intermediate offset, the frontier, which is otherwise the
metadata of the group's commit, and a `fence`. A worker that takes a partition over raises its
fence, in an UPDATE that waits for the row lock, and so for a predecessor's undecided transaction. A
transaction moves a row only if fence and frontier are still those that its worker has read. So if
two workers believe that they own a partition, one of them moves no row, and is fenced. The fence
does for tables what the producer epoch does for topics.

A predecessor that hangs in the middle of its transaction would hold the row lock for ever: its
kernel keeps the connection open, and a server waits in a COPY without a timeout. So before the
fence is raised, the sessions that hold one of the rows are ended (pg_terminate_backend); as with
init_transactions, their open transactions are rolled back.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from psycopg import sql

from common.routes import TopicPartition
from deduplicator.own_destination import Position
from deduplicator.postgresql.session import Session, has_relation

log = logging.getLogger(__name__)
END_HOLDERS = """SELECT pg_terminate_backend(l.pid) FROM {} f
    JOIN unnest(%s::text[], %s::int[]) AS w (topic, partition)
    ON f.intermediate_topic = w.topic AND f.partition = w.partition
    JOIN pg_locks l ON l.locktype = 'transactionid' AND l.granted AND l.transactionid = f.xmax
    WHERE f.application = %s AND l.pid <> pg_backend_pid()"""
RAISE_FENCES = """UPDATE {} f SET fence = f.fence + 1
    FROM unnest(%s::text[], %s::int[]) AS w (topic, partition)
    WHERE f.application = %s AND f.intermediate_topic = w.topic AND f.partition = w.partition
    RETURNING f.intermediate_topic, f.partition, f.fence, f.frontier"""
READ = (
    "SELECT intermediate_topic, partition, next_offset, frontier FROM {} WHERE application = %s AND"
    " intermediate_topic = ANY(%s)"
)
MOVE = """UPDATE {} f SET next_offset = n.next_offset, frontier = n.frontier
    FROM unnest(%s::text[], %s::int[], %s::bigint[], %s::text[], %s::bigint[], %s::text[])
        AS n (topic, partition, next_offset, frontier, fence, was)
    WHERE f.application = %s AND f.intermediate_topic = n.topic AND f.partition = n.partition
        AND f.fence = n.fence AND f.frontier = n.was"""
ADD = "INSERT INTO {} VALUES (%s, %s, %s, %s, %s, 1) ON CONFLICT DO NOTHING"


class FrontierRow(NamedTuple):
    """A row as this worker has read or written it."""

    fence: int
    frontier: str


class FrontierTable:
    """The rows of one application in the table of this name."""

    def __init__(self, name: sql.Identifier, application: str) -> None:
        self.name = name
        self.application = application

    def take_over_rows(
        self, session: Session, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, FrontierRow]:
        """End the sessions that hold these rows, and raise the fences; the existing rows."""
        keys = [
            [tp.topic for tp in partitions],
            [tp.partition for tp in partitions],
            self.application,
        ]
        ended = session.execute(sql.SQL(END_HOLDERS).format(self.name), keys).rowcount
        if ended:
            log.warning(
                "ended %d sessions that were in the middle of a transaction on the frontiers of %s",
                ended,
                partitions,
            )
        raised = session.execute(sql.SQL(RAISE_FENCES).format(self.name), keys)
        return {
            TopicPartition(topic, partition): FrontierRow(fence, frontier)
            for topic, partition, fence, frontier in raised
        }

    def read_rows(self, session: Session, names: list[str]) -> dict[TopicPartition, Position]:
        """The positions of these intermediate topics; none where there is no such table."""
        if not has_relation(session, self.name):
            return {}
        rows = session.execute(sql.SQL(READ).format(self.name), [self.application, names])
        return {
            TopicPartition(topic, partition): Position(next_offset, frontier)
            for topic, partition, next_offset, frontier in rows
        }

    def move_rows(
        self,
        session: Session,
        rows: Mapping[TopicPartition, FrontierRow],
        positions: Mapping[TopicPartition, Position],
    ) -> int:
        """Move the rows that are still as in `rows`, and add those that are not there; how many
        were moved or added.
        """
        known_rows = {tp: rows[tp] for tp in positions if tp in rows}
        columns = [(*tp, *positions[tp], *row) for tp, row in sorted(known_rows.items())]
        moved = (
            session.execute(
                sql.SQL(MOVE).format(self.name),
                [*(list(column) for column in zip(*columns, strict=True)), self.application],
            ).rowcount
            if columns
            else 0
        )
        for tp in sorted(positions.keys() - known_rows.keys()):
            moved += session.execute(
                sql.SQL(ADD).format(self.name), [self.application, *tp, *positions[tp]]
            ).rowcount
        return moved
