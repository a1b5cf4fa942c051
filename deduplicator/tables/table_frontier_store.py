"""The tables of a copy, the frontiers in one of them, and their owners: one session, shared with
`deduplicator.tables.postgresql_destination`.

A partition's frontier is a row of `reo_frontier`: the next intermediate offset, the string that is
otherwise the metadata of the group's commit, and a `fence`. A worker that takes a partition over
raises its fence, in an UPDATE that waits for the row lock, and so for a predecessor's undecided
transaction. A transaction moves a frontier only if the fence and the string are still those that
its worker has read (`move_frontiers`). So if two workers believe that they own a partition, one of
them moves no row, and is fenced. The fence does for tables what the producer epoch does for topics.

A predecessor that hangs in the middle of its transaction would hold the row lock for ever: its
kernel keeps the connection open, and a server waits in a COPY without a timeout. So before the
fence is raised, the sessions that hold one of the rows are ended (pg_terminate_backend); as with
init_transactions, their open transactions are rolled back.

The group's commits repeat the frontiers, for stage one and everything else that reads them there.
They follow the database's commits, so they can be behind; then they are repeated. They are never
ahead, unless the database was set back: that is a stop.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

import psycopg
from psycopg import sql

from common import postgresql, runtime
from common.errors import ClusterUnreachable, StageFailed
from common.frontier import Frontier
from common.kafka import topics
from common.postgresql import PAUSE_S, Session
from common.routes import Route, TopicPartition
from common.settings import Settings
from deduplicator.destination import Output
from deduplicator.frontiers.committed_frontiers import WorkerGroup
from deduplicator.frontiers.frontier_store import (
    CheckedOutputs,
    LoadedFrontiers,
    merge_group_commits,
)
from deduplicator.tables.frontier_rows import FrontierRow, FrontierTable
from deduplicator.tables.last_row_check import check_last_row, select_last_offsets
from deduplicator.tables.table_creation import create_tables

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")
WAITS_S = 5.0
"""A statement that takes longer is reported as waiting for the database."""
LATE = "the transaction is not over within deduplicator.transaction_timeout_ms"
IDENTITY = "postgresql"
"""Stands for the destination's topic id in a frontier: its rows are deleted together with their
table (`deduplicator.tables.table_creation`).
"""
STARTED = "SELECT DISTINCT intermediate_topic FROM {} WHERE application = %s"


class TableFrontierStore:
    """The session of one worker."""

    def __init__(
        self,
        settings: Settings,
        number: int,
        routes: Mapping[str, Route],
        consumer_group: WorkerGroup,
    ) -> None:
        self.settings = settings
        self.role = f"deduplicator-{number}"
        self.routes = routes
        """By intermediate topic; routes are added while the worker runs."""
        self.consumer_group = consumer_group
        self.frontiers = postgresql.quote_frontier_table(settings)
        self.table = FrontierTable(self.frontiers, settings.application)
        self.rows: dict[TopicPartition, FrontierRow] = {}
        self._session: Session | None = None
        self.deadline = math.inf

    @property
    def session(self) -> Session:
        """Waits while the server does not answer."""
        if self._session is None or self._session.closed:
            self._session = postgresql.connect(
                self.settings, self.role, liveness=self.consumer_group.liveness
            )
            self._session.on_wait = self._on_wait
        return self._session

    def set_deadline(self, seconds: float) -> None:
        """A transaction that is not over after so many seconds ends with
        psycopg.OperationalError.
        """
        self.deadline = runtime.monotonic() + seconds

    def _on_wait(self, waited_s: float) -> None:
        """Called while a statement waits for the server."""
        if runtime.monotonic() > self.deadline:
            self.deadline = math.inf
            self.close()
            raise psycopg.OperationalError(LATE)
        if waited_s > WAITS_S:
            self.consumer_group.liveness.report_waiting("database")
        else:
            self.consumer_group.liveness.beat()

    def close(self) -> None:
        """The server rolls an open transaction back."""
        if self._session is not None:
            self._session.close()

    def list_started_topics(self) -> set[str]:
        """From the database, or from the group's commits for tables that no longer exist."""

        def read(session: Session) -> set[str]:
            if not postgresql.has_relation(session, self.frontiers):
                return set()
            return {
                row[0]
                for row in session.execute(
                    sql.SQL(STARTED).format(self.frontiers), [self.settings.application]
                )
            }

        return self._ask("looking for frontiers", read) or self.consumer_group.list_started_topics()

    def load_frontiers(self, partitions: Collection[TopicPartition]) -> LoadedFrontiers:
        """Take these partitions over: their rows, which nobody else can move from now on, compared
        with the group's commits.
        """
        group_commits = self.consumer_group.load_commits(
            {tp.topic for tp in partitions}, partitions
        )
        rows = self._ask(
            "taking the frontiers over",
            lambda session: self.take_over_rows(session, sorted(partitions)),
        )
        loaded = merge_group_commits(
            group_commits,
            {tp: (next_offset, row.frontier) for tp, (next_offset, row) in rows.items()},
            partitions,
            IDENTITY,
        )
        for tp in partitions:
            self.rows.pop(tp, None)
        self.rows |= {tp: row for tp, (_, row) in rows.items() if tp in partitions}
        return loaded

    def describe_destinations(self, routes: Collection[Route]) -> dict[str, topics.Topic] | None:
        """The tables, which exist by now."""
        return self.consumer_group.describe_stored_destinations(routes, IDENTITY)

    def get_end_offsets(self, outputs: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """One more than the greatest source offset of each partition."""
        return {tp: last + 1 for tp, last in self._load_last_offsets(outputs).items()}

    def check_outputs(self, frontiers: Mapping[TopicPartition, Frontier]) -> CheckedOutputs:
        """The last row of a partition has to be the one that the frontier names: no transaction can
        be torn, but somebody else can insert or delete rows.
        """
        for tp, last in self._load_last_offsets(frontiers).items():
            check_last_row(tp, frontiers[tp].destination_known, last)
        return {tp: Output(frontier.destination_known, 0) for tp, frontier in frontiers.items()}, {}

    def move_frontiers(
        self, session: Session, positions: Mapping[TopicPartition, tuple[int, str]]
    ) -> None:
        """In the open transaction; StageFailed when one of the rows is not as this worker has read
        or written it. The rows are locked from then on.
        """
        moved = self.table.move_rows(session, self.rows, positions)
        if moved < len(positions):
            raise StageFailed(
                f"another worker has taken {', '.join(map(str, sorted(positions)))} over: their"
                " frontiers are not as this worker has read them"
            )

    def check_last_rows(
        self, session: Session, known_offsets: Mapping[TopicPartition, int]
    ) -> None:
        """In the open transaction: as `check_outputs`, for the partitions that are written now."""
        for tp, last in select_last_offsets(session, self.settings, known_offsets).items():
            check_last_row(tp, known_offsets[tp], last)

    def on_committed(self, positions: Mapping[TopicPartition, tuple[int, str]]) -> None:
        """The transaction of `move_frontiers` is committed."""
        for tp, (_, frontier) in positions.items():
            self.rows[tp] = FrontierRow(self.rows[tp].fence if tp in self.rows else 1, frontier)

    def _ask(self, operation: str, query: Callable[[Session], Answer]) -> Answer:
        """Ask again, with a new session, until the server answers or the error is a final one."""
        while True:
            try:
                return query(self.session)
            except psycopg.Error as failed:
                error = postgresql.translate(failed, operation)
                if not isinstance(error, ClusterUnreachable):
                    raise error from None
                log.warning("%s", error)
                self.consumer_group.liveness.report_waiting("database")
                self.close()
                runtime.sleep(PAUSE_S)

    def take_over_rows(
        self, session: Session, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, FrontierRow]]:
        """Create the tables, end the sessions that hold these rows, raise the fences; every row of
        their topics, with its next offset.
        """
        names = sorted({tp.topic for tp in partitions})
        create_tables(session, self.settings, self.frontiers, [self.routes[name] for name in names])
        return self.table.take_over_rows(session, partitions)

    def _load_last_offsets(
        self, topic_partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The greatest source offset of each partition's rows; -1 without rows."""
        return self._ask(
            "reading the last rows",
            lambda session: select_last_offsets(session, self.settings, topic_partitions),
        )
