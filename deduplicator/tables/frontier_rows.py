"""The rows of `reo_frontier`, and the statements that read them, take them over and move them.

Each compares or raises the fence of a row, so that a worker that has lost a partition moves no row
(`deduplicator.tables.table_frontier_store` says why).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from psycopg import sql

from common.postgresql import Session
from common.routes import TopicPartition

log = logging.getLogger(__name__)
END_HOLDERS = """SELECT pg_terminate_backend(l.pid) FROM {} f
    JOIN unnest(%s::text[], %s::int[]) AS w (topic, partition)
    ON f.intermediate_topic = w.topic AND f.partition = w.partition
    JOIN pg_locks l ON l.locktype = 'transactionid' AND l.granted AND l.transactionid = f.xmax
    WHERE f.application = %s AND l.pid <> pg_backend_pid()"""
RAISE_FENCES = """UPDATE {} f SET fence = f.fence + 1
    FROM unnest(%s::text[], %s::int[]) AS w (topic, partition)
    WHERE f.application = %s AND f.intermediate_topic = w.topic AND f.partition = w.partition"""
READ = (
    "SELECT intermediate_topic, partition, next_offset, frontier, fence FROM {} WHERE application ="
    " %s AND intermediate_topic = ANY(%s)"
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
        self, session: Session, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, FrontierRow]]:
        """End the sessions that hold the rows of these partitions, and raise the fences; every row
        of their topics, with its next offset.
        """
        names = sorted({tp.topic for tp in partitions})
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
        with session.transaction():
            session.execute(sql.SQL(RAISE_FENCES).format(self.name), keys)
            return self.read_rows(session, names)

    def read_rows(
        self, session: Session, names: list[str]
    ) -> dict[TopicPartition, tuple[int, FrontierRow]]:
        """Every row of these intermediate topics, with its next offset."""
        rows = session.execute(sql.SQL(READ).format(self.name), [self.application, names])
        return {
            TopicPartition(topic, partition): (next_offset, FrontierRow(fence, frontier))
            for topic, partition, next_offset, frontier, fence in rows
        }

    def move_rows(
        self,
        session: Session,
        rows: Mapping[TopicPartition, FrontierRow],
        positions: Mapping[TopicPartition, tuple[int, str]],
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
