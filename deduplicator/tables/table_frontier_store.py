"""The tables of a copy, the frontiers in one of them, and their owners: one session, shared with
`deduplicator.tables.postgresql`.

A partition's frontier is a row of `reo_frontier`: the next intermediate offset, the string that is
otherwise the metadata of the group's commit, and a `fence`. A worker that takes a partition over
raises its fence, in an UPDATE that waits for the row lock, and so for a predecessor's undecided
transaction. A transaction moves a frontier only if the fence and the string are still those that
its worker has read (`move_frontiers`). So if two workers believe that they own a partition, one of
them moves no row, and is fenced. The fence does for tables what the producer epoch does for topics.

A predecessor that hangs in the middle of its transaction would hold the row lock for ever: its
kernel keeps the connection open, and a server waits in a COPY without a time-out. So before the
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
from typing import NamedTuple, TypeVar

import psycopg
from psycopg import sql

from common import postgresql, runtime
from common.errors import (
    ClusterUnreachable,
    DestinationTruncated,
    Fenced,
    ForeignWriter,
    TopicsUnfit,
)
from common.frontier import Frontier
from common.kafka import topics
from common.postgresql import PAUSE_S, Session
from common.routes import Place, Route
from common.settings import Settings
from common.settings.destination_settings import describe_name_error
from deduplicator.destination import Output
from deduplicator.frontier_store import CheckedOutputs, LoadedFrontiers, merge_group_commits
from deduplicator.group_commits import ConsumerGroup
from deduplicator.tables.rows import COLUMNS, PRIMARY_KEY

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")
WAITS_S = 5.0
"""A statement that takes longer is reported as waiting for the database."""
LATE = "the transaction is not over within deduplicator.transaction_timeout_ms"
IDENTITY = "postgresql"
"""Stands for the destination's topic id in a frontier: its rows are deleted together with their
table (`_create_tables`).
"""
CREATE_LOCK = 0x72656F
"""The key of the advisory lock under which tables are created: without it, two workers that create
one at once would fail.
"""
CREATE_FRONTIERS = """CREATE TABLE {} (application text, intermediate_topic text,
    partition integer, next_offset bigint NOT NULL, frontier text NOT NULL, fence bigint NOT NULL,
    PRIMARY KEY (application, intermediate_topic, partition))"""
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
CREATE_TABLE = (
    f"CREATE TABLE {{}} ({', '.join(f'{name} {kind}' for name, kind in COLUMNS.items())}, PRIMARY"
    f" KEY ({', '.join(PRIMARY_KEY)}))"
)
STARTED = "SELECT DISTINCT intermediate_topic FROM {} WHERE application = %s"
FORGET = "DELETE FROM {} WHERE application = %s AND intermediate_topic = %s"
LAST = "SELECT source_offset FROM {} WHERE partition = %s ORDER BY source_offset DESC LIMIT 1"
SHAPE = """SELECT relpersistence::text,
    (SELECT array_agg(attname || ' ' || format_type(atttypid, atttypmod)) FROM pg_attribute
        WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped),
    EXISTS (SELECT FROM pg_index i WHERE indrelid = c.oid AND indisunique AND indpred IS NULL AND
        (SELECT array_agg(attname::text ORDER BY attname) FROM pg_attribute
            WHERE attrelid = c.oid AND attnum = ANY(i.indkey)) = %s::text[])
    FROM pg_class c WHERE oid = to_regclass(%s)"""


class FrontierRow(NamedTuple):
    """A row as this worker has read or written it."""

    fence: int
    frontier: str


class TableFrontierStore:
    """The session of one worker."""

    def __init__(
        self,
        settings: Settings,
        number: int,
        routes: Mapping[str, Route],
        consumer_group: ConsumerGroup,
    ) -> None:
        self.settings = settings
        self.role = f"deduplicator-{number}"
        self.routes = routes
        """By intermediate topic; routes are added while the worker runs."""
        self.consumer_group = consumer_group
        self.frontiers = postgresql.frontiers(settings)
        self.rows: dict[Place, FrontierRow] = {}
        self._session: Session | None = None
        self.deadline = math.inf

    @property
    def session(self) -> Session:
        """Waits while the server does not answer."""
        if self._session is None or self._session.closed:
            self._session = postgresql.connect(
                self.settings, self.role, pulse=self.consumer_group.pulse
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
            self.consumer_group.pulse.wait("database")
        else:
            self.consumer_group.pulse.beat()

    def close(self) -> None:
        """The server rolls an open transaction back."""
        if self._session is not None:
            self._session.close()

    def list_started_topics(self) -> set[str]:
        """From the database, or from the group's commits for tables that no longer exist."""

        def read(session: Session) -> set[str]:
            if not postgresql.is_there(session, self.frontiers):
                return set()
            return {
                row[0]
                for row in session.execute(
                    sql.SQL(STARTED).format(self.frontiers), [self.settings.application]
                )
            }

        return self._ask("looking for frontiers", read) or self.consumer_group.list_started_topics()

    def load_frontiers(self, partitions: Collection[Place]) -> LoadedFrontiers:
        """Take these partitions over: their rows, which nobody else can move from now on, compared
        with the group's commits.
        """
        group_commits = self.consumer_group.load_commits(
            {place.topic for place in partitions}, partitions
        )
        rows = self._ask(
            "taking the frontiers over",
            lambda session: self.take_over_rows(session, sorted(partitions)),
        )
        loaded = merge_group_commits(
            group_commits,
            {place: (next_offset, row.frontier) for place, (next_offset, row) in rows.items()},
            partitions,
            IDENTITY,
        )
        for place in partitions:
            self.rows.pop(place, None)
        self.rows |= {place: row for place, (_, row) in rows.items() if place in partitions}
        return loaded

    def describe_destinations(self, routes: Collection[Route]) -> dict[str, topics.Topic] | None:
        """The tables, which exist by now."""
        names = {route.intermediate_topic for route in routes}
        described = self.consumer_group.describe_topics(names)
        if len(described) < len(names):
            return None
        return {
            route.intermediate_topic: topics.Topic(
                route.destination_topic,
                IDENTITY,
                described[route.intermediate_topic].partitions,
                "",
            )
            for route in routes
        }

    def get_end_offsets(self, outputs: Iterable[Place]) -> dict[Place, int]:
        """One more than the greatest source offset of each partition."""
        return {place: last + 1 for place, last in self._load_last_offsets(outputs).items()}

    def check_outputs(self, frontiers: Mapping[Place, Frontier]) -> CheckedOutputs:
        """The last row of a partition has to be the one that the frontier names: no transaction can
        be torn, but somebody else can insert or delete rows.
        """
        for place, last in self._load_last_offsets(frontiers).items():
            _check_last_row(place, frontiers[place].destination_known, last)
        return {
            place: Output(frontier.destination_known, 0) for place, frontier in frontiers.items()
        }, {}

    def move_frontiers(self, session: Session, positions: Mapping[Place, tuple[int, str]]) -> None:
        """In the open transaction; Fenced when one of the rows is not as this worker has read or
        written it. The rows are locked from then on.
        """
        known_rows = {place: self.rows[place] for place in positions if place in self.rows}
        columns = [(*place, *positions[place], *row) for place, row in sorted(known_rows.items())]
        moved = (
            session.execute(
                sql.SQL(MOVE).format(self.frontiers),
                [
                    *(list(column) for column in zip(*columns, strict=True)),
                    self.settings.application,
                ],
            ).rowcount
            if columns
            else 0
        )
        for place in sorted(positions.keys() - known_rows.keys()):
            moved += session.execute(
                sql.SQL(ADD).format(self.frontiers),
                [self.settings.application, *place, *positions[place]],
            ).rowcount
        if moved < len(positions):
            raise Fenced(
                f"another worker has taken {', '.join(map(str, sorted(positions)))} over: their"
                " frontiers are not as this worker has read them"
            )

    def check_last_rows(self, session: Session, known_offsets: Mapping[Place, int]) -> None:
        """In the open transaction: as `check_outputs`, for the partitions that are written now."""
        for place, last in self._select_last_offsets(session, known_offsets).items():
            _check_last_row(place, known_offsets[place], last)

    def on_committed(self, positions: Mapping[Place, tuple[int, str]]) -> None:
        """The transaction of `move_frontiers` is committed."""
        for place, (_, frontier) in positions.items():
            self.rows[place] = FrontierRow(
                self.rows[place].fence if place in self.rows else 1, frontier
            )

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
                self.consumer_group.pulse.wait("database")
                self.close()
                runtime.sleep(PAUSE_S)

    def take_over_rows(
        self, session: Session, partitions: list[Place]
    ) -> dict[Place, tuple[int, FrontierRow]]:
        """Create the tables, end the sessions that hold these rows, raise the fences; every row of
        their topics, with its next offset.
        """
        names = sorted({place.topic for place in partitions})
        self._create_tables(session, [self.routes[name] for name in names])
        keys = [
            [place.topic for place in partitions],
            [place.partition for place in partitions],
            self.settings.application,
        ]
        ended = session.execute(sql.SQL(END_HOLDERS).format(self.frontiers), keys).rowcount
        if ended:
            log.warning(
                "ended %d sessions that were in the middle of a transaction on the frontiers of %s",
                ended,
                partitions,
            )
        with session.transaction():
            session.execute(sql.SQL(RAISE_FENCES).format(self.frontiers), keys)
            return self.read_rows(session, names)

    def read_rows(self, session: Session, names: list[str]) -> dict[Place, tuple[int, FrontierRow]]:
        """Every row of these intermediate topics, with its next offset."""
        rows = session.execute(
            sql.SQL(READ).format(self.frontiers), [self.settings.application, names]
        )
        return {
            Place(topic, partition): (next_offset, FrontierRow(fence, frontier))
            for topic, partition, next_offset, frontier, fence in rows
        }

    def _create_tables(self, session: Session, routes: Collection[Route]) -> None:
        """Create the missing tables; delete frontiers of a missing table, since they belong to a
        deleted one.
        """
        names = [
            (route, postgresql.table(self.settings, route.destination_topic)) for route in routes
        ]
        for route, _ in names:
            if describe_name_error(route.destination_topic):
                raise TopicsUnfit(describe_name_error(route.destination_topic))
        if not all(
            postgresql.is_there(session, name)
            for name in (self.frontiers, *(name for _, name in names))
        ):
            with session.transaction():
                session.execute("SELECT pg_advisory_xact_lock(%s)", [CREATE_LOCK])
                if not postgresql.is_there(session, self.frontiers):
                    session.execute(sql.SQL(CREATE_FRONTIERS).format(self.frontiers))
                for route, name in names:
                    if not postgresql.is_there(session, name):
                        log.info("creating the table %s", route.destination_topic)
                        session.execute(sql.SQL(CREATE_TABLE).format(name))
                        session.execute(
                            sql.SQL(FORGET).format(self.frontiers),
                            [self.settings.application, route.intermediate_topic],
                        )
        for _, name in names:
            check_columns(session, name)

    def _load_last_offsets(self, places: Iterable[Place]) -> dict[Place, int]:
        """The greatest source offset of each partition's rows; -1 without rows."""
        return self._ask(
            "reading the last rows", lambda session: self._select_last_offsets(session, places)
        )

    def _select_last_offsets(self, session: Session, places: Iterable[Place]) -> dict[Place, int]:
        rows = {
            place: (
                session.execute(
                    sql.SQL(LAST).format(postgresql.table(self.settings, place.topic)),
                    [place.partition],
                ).fetchone()
            )
            for place in places
        }
        return {place: row[0] if row else -1 for place, row in rows.items()}


def check_columns(session: Session, name: sql.Identifier) -> None:
    """TopicsUnfit for a table that somebody has created with other columns."""
    quoted_name = name.as_string(session)
    row = session.execute(SHAPE, [sorted(PRIMARY_KEY), quoted_name]).fetchone()
    persistence, columns, unique = row or ("", [], False)
    missing = [
        f"{column} {kind}" for column, kind in COLUMNS.items() if f"{column} {kind}" not in columns
    ]
    if missing:
        raise TopicsUnfit(
            f"the table {quoted_name} lacks {', '.join(missing)}: change it, or name another"
            " destination.topic"
        )
    if not unique or persistence != "p":
        raise TopicsUnfit(
            f"the table {quoted_name} has to be logged, and to have the primary key"
            f" ({', '.join(PRIMARY_KEY)}): change it, or name another destination.topic"
        )


def _check_last_row(place: Place, known: int, last: int) -> None:
    """ForeignWriter or DestinationTruncated when the last row is not the one that was written last;
    deleting all rows is the owner's decision.
    """
    if last > known:
        raise ForeignWriter(
            f"the table of {place} has a row with source_offset {last}, which this copy did not"
            f" write: its own last row has {known}. Stop the other writer; then copy to a new"
            " destination.topic, or delete that row"
        )
    if 0 <= last < known:
        raise DestinationTruncated(
            f"the table of {place} lacks rows that were committed: the last one had source_offset"
            f" {known}, now it is {last}. Copy to a new destination.topic, or restore this one"
        )
    if last < known:
        log.warning("%s: all rows were deleted; what was copied is not copied again", place)
