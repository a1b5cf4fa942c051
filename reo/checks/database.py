"""The database of a copy to tables: does it answer, may its user do what stage two does, do the
tables fit, and what would be created.

All queries run in one read-only session, so nothing is changed. Stage two's own code reads the
frontiers from the tables (`deduplicator.tables.table_frontier_store`); here it does not take them
over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import psycopg

from common import postgresql
from common.errors import AccessRefused, ClusterUnreachable, ReoError, TopicsUnfit
from common.kafka.route_topics import RouteTopics
from common.postgresql import Session
from common.routes import Route, TopicPartition
from common.settings import Settings
from common.settings.destination_kind import (
    FRONTIER_TABLE,
    POSTGRESQL,
    POSTGRESQL_SCHEMA,
    describe_name_error,
)
from deduplicator.frontiers.committed_frontiers import WorkerGroup
from deduplicator.tables.frontier_rows import FrontierRow
from deduplicator.tables.rows import COLUMNS
from deduplicator.tables.table_creation import check_columns
from deduplicator.tables.table_frontier_store import TableFrontierStore
from reo.checks.findings import Finding, report_failure, report_ok, report_warning

Answer = TypeVar("Answer")
ABOUT = "destination database"
READ_ONLY = "SET default_transaction_read_only = on"
MAY = (
    "SELECT has_schema_privilege(oid, 'USAGE'), has_schema_privilege(oid, 'CREATE') FROM"
    " pg_namespace WHERE nspname = %s"
)
HAS = "SELECT has_table_privilege(%s, %s)"
HAS_COLUMNS = (
    "SELECT bool_and(has_column_privilege(%s, name, %s)) FROM unnest(%s::text[]) AS c (name)"
)
FRONTIER_PRIVILEGES, RECORD_PRIVILEGES = (
    ("SELECT", "INSERT", "UPDATE", "DELETE"),
    ("SELECT", "INSERT"),
)
"""The privileges that stage two needs on `reo_frontier`, and on the columns of a record."""


class Database:
    """ClusterUnreachable or AccessRefused when the connection fails."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.session = postgresql.connect(settings, "check", settings.connect_timeout_s)
        self.tables: frozenset[str] | None = None
        """Those that exist; None until all have been found right."""
        self._query("connecting to the database", lambda session: session.execute(READ_ONLY))

    def check_server(self) -> Iterator[Finding]:
        """Which server answers, and whether its commits are durable."""
        info = self.session.info
        version = info.parameter_status("server_version")
        yield report_ok(
            ABOUT,
            f"{info.host}:{info.port} answers: PostgreSQL {version}, database {info.dbname}, user"
            f" {info.user}",
        )
        if self._query_value("SHOW fsync") == "off":
            yield report_warning(
                ABOUT,
                "fsync is off: a crash of its machine can lose rows and keep the frontier that"
                " counts them",
                "set fsync=on",
            )

    def check_tables(self, state: RouteTopics) -> Iterator[Finding]:
        """The schema and the tables; notes in `tables` which exist."""
        may_create = self._can_create()
        existing, are_right = set(), True
        for name in (FRONTIER_TABLE, *(route.destination_topic for route in state.sources)):
            try:
                if self._is_fit(name):
                    existing.add(name)
                    yield report_ok(
                        f"table {name}", "exists, and the user has all privileges that a copy needs"
                    )
                elif may_create:
                    yield report_ok(f"table {name}", "does not exist: it would be created")
                else:
                    raise AccessRefused(
                        f"the table {name} does not exist and cannot be created: the user of"
                        f" {POSTGRESQL} lacks CREATE on the schema"
                        f" {self.settings.destination.postgresql_schema}. Grant it, or create the"
                        " table (`docs/how-to/postgresql.md` has its columns)"
                    )
            except ReoError as error:
                are_right = False
                yield report_failure(f"table {name}", error)
        self.tables = frozenset(existing) if are_right else None

    def open_frontiers(
        self, routes: Mapping[str, Route], consumer_group: WorkerGroup
    ) -> ReadOnlyTables:
        """The frontiers as a start reads them, for these routes by intermediate topic."""
        return ReadOnlyTables(self.settings, routes, consumer_group, self.session)

    def _can_create(self) -> bool:
        """Whether the user may create tables in the schema; TopicsUnfit when there is no schema,
        AccessRefused without USAGE.
        """
        schema = self.settings.destination.postgresql_schema
        row = self._query(
            "checking the schema", lambda session: session.execute(MAY, [schema]).fetchone()
        )
        if row is None:
            raise TopicsUnfit(
                f"the schema {schema} does not exist. Create it, or correct {POSTGRESQL_SCHEMA}"
            )
        if not row[0]:
            raise AccessRefused(
                f"the user of {POSTGRESQL} lacks USAGE on the schema {schema}. Grant it"
            )
        return bool(row[1])

    def _is_fit(self, name: str) -> bool:
        """Whether the table exists; TopicsUnfit or AccessRefused when it cannot be used."""
        table = postgresql.quote_table(self.settings, name)
        if name != FRONTIER_TABLE and describe_name_error(name):
            raise TopicsUnfit(describe_name_error(name))
        if not self._query(
            f"looking up the table {name}", lambda session: postgresql.has_relation(session, table)
        ):
            return False
        qualified_name = table.as_string(self.session)
        if name == FRONTIER_TABLE:
            missing = [
                privilege
                for privilege in FRONTIER_PRIVILEGES
                if not self._query_value(HAS, qualified_name, privilege)
            ]
        else:
            self._query(f"checking the table {name}", lambda session: check_columns(session, table))
            missing = [
                privilege
                for privilege in RECORD_PRIVILEGES
                if not self._query_value(HAS_COLUMNS, qualified_name, privilege, list(COLUMNS))
            ]
        if missing:
            raise AccessRefused(
                f"the user of {POSTGRESQL} lacks {', '.join(missing)} on the table"
                f" {qualified_name}. Grant it"
            )
        return True

    def _query_value(self, query: str, *values: object) -> object:
        row = self._query(
            "checking the database",
            lambda session: session.execute(query.encode(), values).fetchone(),
        )
        return row and row[0]

    def _query(self, action: str, query: Callable[[Session], Answer]) -> Answer:
        try:
            return query(self.session)
        except psycopg.Error as error:
            raise postgresql.translate(error, action) from None


class ReadOnlyTables(TableFrontierStore):
    """Reads frontiers and rows, in an existing session."""

    def __init__(
        self,
        settings: Settings,
        routes: Mapping[str, Route],
        consumer_group: WorkerGroup,
        session: Session,
    ) -> None:
        super().__init__(settings, 0, routes, consumer_group)
        self._session = session

    @property
    def session(self) -> Session:
        """ClusterUnreachable when the connection is lost: it does not reconnect."""
        if self._session is None or self._session.closed:
            raise ClusterUnreachable("the connection to the database was lost. Check again")
        return self._session

    def take_over_rows(
        self, session: Session, topic_partitions: list[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, FrontierRow]]:
        """Take nothing over: return the rows as they are."""
        return (
            self.table.read_rows(session, sorted({tp.topic for tp in topic_partitions}))
            if postgresql.has_relation(session, self.frontiers)
            else {}
        )
