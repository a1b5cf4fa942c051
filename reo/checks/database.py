"""The database of a copy to tables: is it there, may its user do what stage two does, are the tables as a start wants them, and what would be made.

Everything is asked in one session that can only read, so nothing is changed whatever is asked. What its tables say of the frontiers, stage two's own keeper
reads (`deduplicator.table_keeper`); here it takes nothing over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import psycopg

from common import postgresql
from common.errors import AccessRefused, ClusterUnreachable, ReoError, TopicsUnfit
from common.postgresql import Session
from common.routes import Place, Route
from common.settings import Settings
from common.tables import CONNECTION, FRONTIERS, SCHEMA, name_error
from deduplicator.keeper import InGroup
from deduplicator.rows import COLUMNS
from deduplicator.table_keeper import Held, TableKeeper, check_shape
from reo.checks.findings import Finding, failed, ok, warning
from reo.checks.topics import Stand

Answer = TypeVar("Answer")
ABOUT = "destination database"
ONLY_READS = "SET default_transaction_read_only = on"
MAY = "SELECT has_schema_privilege(oid, 'USAGE'), has_schema_privilege(oid, 'CREATE') FROM pg_namespace WHERE nspname = %s"
HAS = "SELECT has_table_privilege(%s, %s)"
HAS_COLUMNS = "SELECT bool_and(has_column_privilege(%s, name, %s)) FROM unnest(%s::text[]) AS c (name)"
OF_FRONTIERS, OF_RECORDS = ("SELECT", "INSERT", "UPDATE", "DELETE"), ("SELECT", "INSERT")
"""What stage two does with `reo_frontier`, and with the columns of a record."""


class Database:
    """ClusterUnreachable or AccessRefused when it cannot be entered."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.session = postgresql.connect(settings, "check", settings.number("connect_timeout_s"))
        self._asked("looking at the database", lambda session: session.execute(ONLY_READS))

    def seen(self) -> Iterator[Finding]:
        """Who answers, and whether what it commits is safe."""
        known = self.session.info
        version = known.parameter_status("server_version")
        yield ok(ABOUT, f"{known.host}:{known.port} answers: PostgreSQL {version}, database {known.dbname}, user {known.user}")
        if self._one("SHOW fsync") == "off":
            yield warning(ABOUT, "fsync is off: a crash of its machine can lose rows and keep the frontier that counts them", "set fsync=on")

    def check(self, found: Stand) -> Iterator[Finding]:
        """The schema and the tables; notes in `found` which are there."""
        found.tables = frozenset()
        may_create = self._may_create()
        there = set()
        for name in (FRONTIERS, *(route.destination_topic for route in found.sources)):
            try:
                if self._is_fit(name):
                    there.add(name)
                    yield ok(f"table {name}", "is there, and its user may do with it what a copy does")
                elif may_create:
                    yield ok(f"table {name}", "does not exist: it would be made")
                else:
                    raise AccessRefused(f"the table {name} does not exist and cannot be made: the user of {CONNECTION} lacks CREATE on the schema "
                                        f"{self.settings.text(SCHEMA)}. Grant it, or make the table (`docs/how-to/postgresql.md` has its columns)")
            except ReoError as unfit:
                yield failed(f"table {name}", unfit)
        found.tables = frozenset(there)

    def keeper(self, routes: Mapping[str, Route], in_group: InGroup) -> Looking:
        """What a start asks, of these routes by intermediate topic."""
        return Looking(self.settings, routes, in_group, self.session)

    def _may_create(self) -> bool:
        """Whether tables can be made in the schema; TopicsUnfit without one, AccessRefused when it may not be used."""
        schema = self.settings.text(SCHEMA)
        row = self._asked("looking at the schema", lambda session: session.execute(MAY, [schema]).fetchone())
        if row is None:
            raise TopicsUnfit(f"the schema {schema} does not exist. Create it, or correct {SCHEMA}")
        if not row[0]:
            raise AccessRefused(f"the user of {CONNECTION} lacks USAGE on the schema {schema}. Grant it")
        return bool(row[1])

    def _is_fit(self, name: str) -> bool:
        """Whether the table is there; TopicsUnfit or AccessRefused for one that cannot be used."""
        table = postgresql.table(self.settings, name)
        if name != FRONTIERS and name_error(name):
            raise TopicsUnfit(name_error(name))
        if not self._asked(f"looking for the table {name}", lambda session: postgresql.is_there(session, table)):
            return False
        shown = table.as_string(self.session)
        if name == FRONTIERS:
            lacking = [right for right in OF_FRONTIERS if not self._one(HAS, shown, right)]
        else:
            self._asked(f"looking at the table {name}", lambda session: check_shape(session, table))
            lacking = [right for right in OF_RECORDS if not self._one(HAS_COLUMNS, shown, right, list(COLUMNS))]
        if lacking:
            raise AccessRefused(f"the user of {CONNECTION} lacks {', '.join(lacking)} on the table {shown}. Grant it")
        return True

    def _one(self, query: str, *values: object) -> object:
        row = self._asked("looking at the database", lambda session: session.execute(query.encode(), values).fetchone())
        return row and row[0]

    def _asked(self, doing: str, question: Callable[[Session], Answer]) -> Answer:
        try:
            return question(self.session)
        except psycopg.Error as wrong:
            raise postgresql.translate(wrong, doing) from None


class Looking(TableKeeper):
    """Reads frontiers and rows, in a session that is given."""

    def __init__(self, settings: Settings, routes: Mapping[str, Route], in_group: InGroup, session: Session) -> None:
        super().__init__(settings, 0, routes, in_group)
        self._session = session

    @property
    def session(self) -> Session:
        """ClusterUnreachable when it is lost: nothing is waited for."""
        if self._session is None or self._session.closed:
            raise ClusterUnreachable("the database was there and does not answer any more. Check again")
        return self._session

    def take_over(self, session: Session, wanted: list[Place]) -> dict[Place, tuple[int, Held]]:
        """Nothing: the rows as they are."""
        return self.read(session, sorted({place.topic for place in wanted})) if postgresql.is_there(session, self.frontiers) else {}
