"""Rows and positions in one database transaction.

A position is a row of `reo_frontier`, with a fence (`deduplicator.postgresql.frontier_rows`). A
commit does everything at once: it moves the positions, which locks their rows, checks the last
rows, copies the records (COPY), and then both become visible together. In this order the first
statement stops a worker that has lost its partitions, and the worker that takes them over waits in
one place only, and can end that wait. No transaction can be torn, and none can arrive late: a
commit that was sent and not answered is decided before its row can be read again.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TypeVar

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from common import clock, failpoints
from common.background_probe import Probe
from common.errors import ClusterUnreachable, RecordRefused, TopicMissing, TopicsUnfit
from common.routes import Route, TopicPartition
from deduplicator.frontiers.stored_frontiers import check_last_offset
from deduplicator.own_destination import Checked, NotOwner, Position, Setup, StoredRecord
from deduplicator.postgresql import session as sessions
from deduplicator.postgresql.frontier_rows import FrontierRow, FrontierTable
from deduplicator.postgresql.rows import BEGIN, COLUMNS, END, encode_rows
from deduplicator.postgresql.session import ANSWER_S, FRONTIER_TABLE, NAME_BYTES_MAX, Session
from deduplicator.postgresql.table_checks import TableChecks
from deduplicator.postgresql.table_creation import create_tables

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")
LATE = "the transaction is not over within deduplicator.transaction_timeout_ms"
LATE_MAX = 3
PROBE_S = 5.0
FETCH_ROWS = 1000
CHUNK_RECORDS = 1000
"""Records that are encoded at once: so few that they stay in the processor's cache."""
COPY = f"COPY {{}} ({', '.join(COLUMNS)}) FROM STDIN (FORMAT binary)"
LINE = re.compile(r", line (\d+)")
"""In the context of a COPY error: the row, counted from 1."""
LAST = "SELECT source_offset FROM {} WHERE partition = %s ORDER BY source_offset DESC LIMIT 1"
SELECT = (
    "SELECT source_offset, key, value, header_names, header_values, timestamp_ms FROM {} WHERE"
    " partition = %s AND source_offset >= %s ORDER BY source_offset"
)
LAST_PARTITION = "SELECT max(partition) FROM {}"


class PostgresqlStore:
    """One session; `destination.options` may have the `schema` of the tables."""

    identity = "postgresql"
    """Its positions are deleted together with their table."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.schema = _check_options(setup)
        self.rows: dict[TopicPartition, FrontierRow] = {}
        """Of the partitions that this worker owns, as it has read or written them."""
        self.last_offsets: dict[TopicPartition, int] = {}
        """Each destination partition's last row: its source offset, as this worker knows it."""
        self.table = FrontierTable(self._quote(FRONTIER_TABLE), setup.application)
        self.routes: dict[str, Route] = {}
        """By intermediate topic, those that were prepared."""
        self.deadline = math.inf
        self.late_count = 0
        """How many transactions of a single record in a row were not over in time."""
        self._session: Session | None = None
        self._copying: tuple[str, Sequence[StoredRecord]] | None = None
        self.session  # noqa: B018  (connects)
        self.probe = Probe(lambda: sessions.connect(setup).close(), None, PROBE_S + 2 * ANSWER_S)
        if not setup.read_only:
            self.probe.start("database", PROBE_S)

    @property
    def session(self) -> Session:
        """ClusterUnreachable when the server does not answer."""
        if self._session is None or self._session.closed:
            self._session = sessions.connect(self.setup)
            self._session.on_wait = self._on_wait
        return self._session

    def prepare(self, routes: Sequence[Route]) -> None:
        """Create the tables, unless nothing may be changed."""
        self.routes |= {route.intermediate_topic: route for route in routes}
        check_routes(routes)
        if not self.setup.read_only:
            self._query(
                "creating the tables",
                lambda session: create_tables(session, self.table, self.schema, routes),
            )

    def take_over(self, partitions: Sequence[TopicPartition]) -> None:
        """End the sessions that hold the rows of these partitions, and raise their fences."""
        taken = self._query(
            "taking the frontiers over",
            lambda session: self.table.take_over_rows(session, partitions),
        )
        for tp in partitions:
            self.rows.pop(tp, None)
        self.rows |= taken

    def read_positions(self, topics: Collection[str]) -> dict[TopicPartition, Position]:
        """Their rows. Those of a missing table are deleted when it is created, so where nothing may
        be created, they are left out.
        """
        missing = {
            route.intermediate_topic
            for route in (self.routes.values() if self.setup.read_only else ())
            if not self._has_table(route.destination_topic)
        }
        names = sorted(set(topics) - missing)
        return self._query(
            "reading the frontiers", lambda session: self.table.read_rows(session, names)
        )

    def last_source_offset(self, destination: TopicPartition) -> int:
        """-1 also where there is no table yet."""

        def select(session: Session) -> int:
            try:
                return self._select_last_offset(session, destination)
            except psycopg.errors.UndefinedTable:
                return -1

        last = self.last_offsets[destination] = self._query("reading the last row", select)
        return last

    def commit(
        self, records: Sequence[StoredRecord], positions: Mapping[TopicPartition, Position]
    ) -> None:
        """One transaction. ClusterUnreachable when its outcome is in doubt; otherwise an error
        after which nothing of it is stored.
        """
        last_offsets = {
            TopicPartition(*place): offset
            for place, offset in {record[:2]: record.source_offset for record in records}.items()
        }
        try:
            session = self.session
            self.set_deadline(self.setup.timeout_s)
            with session.transaction():
                if self.table.move_rows(session, self.rows, positions) < len(positions):
                    raise NotOwner("their frontiers are not as this worker has read them")
                for tp in last_offsets.keys() & self.last_offsets.keys():
                    last = self._select_last_offset(session, tp)
                    check_last_offset(f"the table of {tp}", tp, self.last_offsets[tp], last)
                for topic, rows in groupby(records, itemgetter(0)):
                    self._copy(session, topic, list(rows))
                failpoints.hit("two: offsets sent")
                failpoints.hit_soon("two: committing")
        except psycopg.Error as failed:
            raise self._translate_error(failed, records) from None
        finally:
            self.set_deadline(math.inf)
            self._copying = None
        self.late_count = 0
        self.last_offsets |= last_offsets
        for tp, (_, frontier) in positions.items():
            self.rows[tp] = FrontierRow(self.rows[tp].fence if tp in self.rows else 1, frontier)

    def close(self) -> None:
        """The server rolls an open transaction back."""
        self.probe.close()
        self._end_session()

    def is_answering(self) -> bool:
        """A probe asks in a thread of its own, with sessions of its own."""
        return self.probe.has_answered

    def check(self, routes: Sequence[Route]) -> Iterator[Checked]:
        """The server, the schema and the tables."""
        check_routes(routes)
        return TableChecks(self.session, self.schema, self.table.name).run(routes)

    def read(self, destination: TopicPartition, source_offset: int) -> Iterator[StoredRecord]:
        """With a cursor at the server."""
        statement = sql.SQL(SELECT).format(self._quote(destination.topic))
        try:
            with self.session.transaction(), self.session.cursor(name="verify") as cursor:
                cursor.itersize = FETCH_ROWS
                cursor.execute(statement, [destination.partition, source_offset], binary=True)
                for offset, key, value, names, values, timestamp_ms in cursor:
                    headers = list(zip(names or [], values or [], strict=True))
                    source = TopicPartition("", destination.partition)
                    place = (*destination, *source, offset)
                    yield StoredRecord(*place, key, value, headers, timestamp_ms)
        except psycopg.Error as failed:
            raise sessions.translate(failed, f"reading the table of {destination}") from None

    def count_partitions(self, topic: str) -> int:
        """The highest one that has a row, and 1."""
        if not self._has_table(topic):
            raise TopicMissing(f"the table {topic} does not exist: nothing was copied to it yet")
        statement = sql.SQL(LAST_PARTITION).format(self._quote(topic))
        row = self._query(
            f"reading the table {topic}", lambda session: session.execute(statement).fetchone()
        )
        return row[0] + 1 if row and row[0] is not None else 0

    def set_deadline(self, seconds: float) -> None:
        """After so many seconds a transaction ends with psycopg.OperationalError."""
        self.deadline = clock.monotonic() + seconds

    def _on_wait(self, waited_s: float) -> None:
        """Called while a statement waits for the server."""
        if clock.monotonic() > self.deadline:
            self.deadline = math.inf
            self._end_session()
            raise psycopg.OperationalError(LATE)
        self.setup.on_wait(waited_s)

    def _end_session(self) -> None:
        if self._session is not None:
            self._session.close()

    def _quote(self, name: str) -> sql.Identifier:
        return sessions.quote_table(self.schema, name)

    def _has_table(self, name: str) -> bool:
        return self._query(
            f"looking up the table {name}",
            lambda session: sessions.has_relation(session, self._quote(name)),
        )

    def _select_last_offset(self, session: Session, tp: TopicPartition) -> int:
        statement = sql.SQL(LAST).format(self._quote(tp.topic))
        row = session.execute(statement, [tp.partition]).fetchone()
        return row[0] if row else -1

    def _query(self, operation: str, query: Callable[[Session], Answer]) -> Answer:
        try:
            return query(self.session)
        except psycopg.Error as failed:
            error = sessions.translate(failed, operation)
            if isinstance(error, ClusterUnreachable):
                self._end_session()
            raise error from None

    def _copy(self, session: Session, topic: str, records: Sequence[StoredRecord]) -> None:
        self._copying = (topic, records)
        statement = sql.SQL(COPY).format(self._quote(topic))
        with session.cursor() as cursor, cursor.copy(statement) as copy:
            copy.write(BEGIN)
            for begin in range(0, len(records), CHUNK_RECORDS):
                copy.write(encode_rows(records[begin : begin + CHUNK_RECORDS]))
            copy.write(END)
        self._copying = None

    def _translate_error(self, failed: psycopg.Error, records: Sequence[StoredRecord]) -> Exception:
        """The error to raise; the transaction is rolled back, or its outcome is in doubt."""
        doing = (
            f"copying to the table {self._copying[0]}"
            if self._copying
            else "committing to the database"
        )
        error = sessions.translate(failed, doing)
        if LATE in str(failed) and len(records) == 1:
            self.late_count += 1
            if self.late_count == LATE_MAX:  # the server did answer between two of them
                return RecordRefused(
                    f"{_name_record(records[0])}: alone in its transaction, {self.late_count} times"
                    " in a row the database did not accept it within"
                    " deduplicator.transaction_timeout_ms. Raise that, or leave such records out"
                    " with filter.function",
                    is_explained=True,
                )
        if isinstance(error, ClusterUnreachable):
            self._end_session()
        line = LINE.search(failed.diag.context or "")
        if isinstance(error, RecordRefused) and self._copying and line:
            record = self._copying[1][int(line[1]) - 1]
            return RecordRefused(f"{_name_record(record)}: {error}", is_explained=True)
        return error


def _name_record(record: StoredRecord) -> str:
    return (
        f"the record of source partition {record.source_partition} at offset {record.source_offset}"
    )


def _check_options(setup: Setup) -> str:
    """The schema; ValueError, without what is secret, for what cannot be used."""
    options = {"schema": "public", **setup.options}
    if options.keys() != {"schema"}:
        raise ValueError(f"the option of PostgreSQL is schema, not {', '.join(setup.options)}")
    schema = options["schema"]
    if not isinstance(schema, str) or not 0 < len(schema.encode()) <= NAME_BYTES_MAX:
        raise ValueError(f"schema: a name of 1 to {NAME_BYTES_MAX} bytes is expected")
    try:
        if not conninfo_to_dict(setup.connection):
            raise psycopg.ProgrammingError
    except psycopg.Error:
        raise ValueError(
            "destination.connection: a connection string of libpq is expected, like host=…"
            " dbname=… user=… password=… or postgresql://user:password@host/dbname"
        ) from None
    return schema


def check_routes(routes: Sequence[Route]) -> None:
    """TopicsUnfit where a table cannot have the records of a route."""
    for route in routes:
        if not route.is_one_to_one:
            raise TopicsUnfit(
                f"{route}: a row is identified by its source partition and offset, so a table has"
                " one source topic and no mapping",
                "Copy each source topic to a table of its own",
            )
        if reason := sessions.describe_name_error(route.destination_topic):
            raise TopicsUnfit(reason)
