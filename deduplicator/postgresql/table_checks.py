"""What `reo check` and a start ask the database: which server answers, may its user do what stage
two does, do the tables fit, and what would be created. The session can only read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import psycopg
from psycopg import sql

from common.errors import AccessRefused, ReoError, TopicsUnfit
from common.routes import Route
from deduplicator.own_destination import Checked
from deduplicator.postgresql.rows import COLUMNS
from deduplicator.postgresql.session import (
    FRONTIER_TABLE,
    Session,
    has_relation,
    quote_table,
    translate,
)
from deduplicator.postgresql.table_creation import check_columns

ABOUT = "destination database"
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


class TableChecks:
    """The checks of one session."""

    def __init__(self, session: Session, schema: str, frontiers: sql.Identifier) -> None:
        self.session = session
        self.schema = schema
        self.frontiers = frontiers

    def run(self, routes: Sequence[Route]) -> Iterator[Checked]:
        """The server, then the schema and each table."""
        try:
            yield from self._check_server()
            may_create = self._can_create()
            for name in (FRONTIER_TABLE, *(route.destination_topic for route in routes)):
                yield self._check_table(name, may_create)
        except psycopg.Error as failed:
            raise translate(failed, "checking the database") from None

    def _check_server(self) -> Iterator[Checked]:
        """Which server answers, and whether its commits are durable."""
        info = self.session.info
        version = info.parameter_status("server_version")
        yield Checked(
            ABOUT,
            f"{info.host}:{info.port} answers: PostgreSQL {version}, database {info.dbname}, user"
            f" {info.user}",
        )
        if self._query_value("SHOW fsync") == "off":
            yield Checked(
                ABOUT,
                "fsync is off: a crash of its machine can lose rows and keep the frontier that"
                " counts them",
                "set fsync=on",
            )

    def _can_create(self) -> bool:
        """Whether the user may create tables in the schema; TopicsUnfit when there is no schema,
        AccessRefused without USAGE.
        """
        row = self.session.execute(MAY, [self.schema]).fetchone()
        if row is None:
            raise TopicsUnfit(
                f"the schema {self.schema} does not exist. Create it, or correct the schema in"
                " destination.options"
            )
        if not row[0]:
            raise AccessRefused(f"the user lacks USAGE on the schema {self.schema}. Grant it")
        return bool(row[1])

    def _check_table(self, name: str, may_create: bool) -> Checked:
        about = f"table {name}"
        try:
            if self._is_fit(name):
                return Checked(about, "exists, and the user has all privileges that a copy needs")
        except ReoError as error:
            return Checked(about, error=error)
        if may_create:
            return Checked(about, "does not exist: it would be created")
        return Checked(
            about,
            error=AccessRefused(
                f"the table {name} does not exist and cannot be created: the user lacks CREATE on"
                f" the schema {self.schema}. Grant it, or create the table"
                " (`docs/how-to/postgresql.md` has its columns)"
            ),
        )

    def _is_fit(self, name: str) -> bool:
        """Whether the table exists; TopicsUnfit or AccessRefused when it cannot be used."""
        table = quote_table(self.schema, name)
        if not has_relation(self.session, table):
            return False
        quoted_name = table.as_string(self.session)
        if name == FRONTIER_TABLE:
            missing = [
                privilege
                for privilege in FRONTIER_PRIVILEGES
                if not self._query_value(HAS, quoted_name, privilege)
            ]
        else:
            check_columns(self.session, table)
            missing = [
                privilege
                for privilege in RECORD_PRIVILEGES
                if not self._query_value(HAS_COLUMNS, quoted_name, privilege, list(COLUMNS))
            ]
        if missing:
            raise AccessRefused(
                f"the user lacks {', '.join(missing)} on the table {quoted_name}. Grant it"
            )
        return True

    def _query_value(self, query: str, *values: object) -> object:
        row = self.session.execute(query.encode(), values).fetchone()
        return row and row[0]
