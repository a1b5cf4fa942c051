"""A connection to PostgreSQL, table names, and the one place where its errors are translated.

The connection string is libpq's, with everything that libpq supports: TLS, several hosts, a
password file. It is a secret: no message repeats it; a server's message about a refused connection
contains only user, host and database. A session stays ours for as long as it lives: poolers that
give each transaction another session are not supported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import Any, TypeVar, cast

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow

from common import clock
from common.errors import (
    AccessRefused,
    ClusterUnreachable,
    ForeignWriter,
    RecordRefused,
    ReoError,
    StageFailed,
    TopicsUnfit,
)
from deduplicator.own_destination import Setup

Answer = TypeVar("Answer")
FRONTIER_TABLE = "reo_frontier"
"""The table with the frontiers."""
NAME_BYTES_MAX = 63
"""The longest identifier (NAMEDATALEN - 1). PostgreSQL truncates a longer one without an error, so
two topics could become one table.
"""
LOOK_S = 0.1
ANSWER_S = 5
"""Timeout of one attempt to connect, and of a lock."""
REFUSED = re.compile(
    r"password|authentication (failed|method)|pg_hba|(role|database) .* does not exist|permission"
    r" denied|not permitted|certificate|"
    r"does not support SSL",
    re.IGNORECASE,
)
"""Messages of a server or of libpq after which a retry is useless. A refused connection has no
SQLSTATE (libpq gives none). After any other message the connection is retried, and the message is
reported when the time is over.
"""
SOCKET = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""The kernel detects a server whose machine is gone: statements have no timeout of their own."""


class Session(psycopg.Connection[TupleRow]):
    """A connection that calls `on_wait` repeatedly while it waits for the server, with the seconds
    so far. `on_wait` may raise.
    """

    on_wait: Callable[[float], None] = staticmethod(lambda _: None)

    def wait(
        self,
        gen: Generator[Any, Any, Answer],
        interval: float = LOOK_S,
        timeout: float | None = None,
    ) -> Answer:
        """Every statement, and every part of a COPY, waits here."""
        return super().wait(self._watch(gen), interval, timeout)

    def _watch(self, gen: Generator[Any, Any, Answer]) -> Generator[Any, Any, Answer]:
        started_at = clock.monotonic()
        try:
            state = next(gen)
            while True:
                ready = yield state
                self.on_wait(clock.monotonic() - started_at)
                state = gen.send(ready)
        except StopIteration as done:
            return cast(Answer, done.value)


def connect(setup: Setup) -> Session:
    """A session in which each statement is a transaction. ClusterUnreachable when the server does
    not answer, AccessRefused when it refuses.
    """
    try:
        session = Session.connect(**_build_parameters(setup), autocommit=True)
        _prepare(session, setup)
    except psycopg.Error as failed:
        raise _translate_connection_error(setup, failed) from None
    return session


def quote_table(schema: str, name: str) -> sql.Identifier:
    """The table of a destination topic, quoted."""
    return sql.Identifier(schema, name)


def describe_name_error(name: str) -> str:
    """Why no table can have this name; empty when it can."""
    if name == FRONTIER_TABLE:
        return f"{name!r} is the table with the frontiers: choose another destination.topic"
    if len(name.encode()) > NAME_BYTES_MAX:
        return (
            f"{name!r} is longer than {NAME_BYTES_MAX} bytes, the longest name of a table: choose"
            " another destination.topic"
        )
    return ""


def has_relation(session: Session, name: sql.Identifier) -> bool:
    """Whether the table exists."""
    row = session.execute(
        "SELECT to_regclass(%s) IS NOT NULL", [name.as_string(session)]
    ).fetchone()
    return bool(row and row[0])


def _build_parameters(setup: Setup) -> dict[str, Any]:
    """The connection string wins, but for what reo depends on. `read-write` is the primary."""
    defaults = {"connect_timeout": ANSWER_S, "target_session_attrs": "read-write", **SOCKET}
    name = setup.client.encode()[:NAME_BYTES_MAX].decode(errors="ignore")
    return (
        defaults
        | conninfo_to_dict(setup.connection)
        | {"application_name": name, "client_encoding": "UTF8"}
    )


def _prepare(session: Session, setup: Setup) -> None:
    """Abandoned transactions end by a timeout, as in Kafka; committed ones are on disk."""
    # an UPDATE that waited for a lock reads the row again
    session.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    for name, value in (
        ("idle_in_transaction_session_timeout", round(setup.timeout_s * 1000)),
        ("lock_timeout", 1000 * ANSWER_S),
        *([("default_transaction_read_only", "on")] if setup.read_only else []),
    ):
        session.execute("SELECT set_config(%s, %s, false)", [name, str(value)])
    session.execute(
        "SELECT set_config('synchronous_commit', 'on', false) WHERE"
        " current_setting('synchronous_commit') = 'off'"
    )


def _translate_connection_error(setup: Setup, failed: psycopg.Error) -> ReoError:
    """The typed error for a failed connection, never with the password in it."""
    reason = " ".join(str(failed).split())
    password = conninfo_to_dict(setup.connection).get("password")
    if password and str(password) in reason:
        reason = type(failed).__name__
    if REFUSED.search(reason):
        return AccessRefused(
            f"the database refused the connection: {reason}. Check destination.connection and what"
            " the server allows (pg_hba.conf)"
        )
    return ClusterUnreachable(
        f"the database does not answer: {reason}. Check destination.connection, and that the server"
        " runs and can be reached from here"
    )


def translate(failed: psycopg.Error, doing: str) -> ReoError:
    """The typed error for a server's error; `doing` says what failed. After ClusterUnreachable, a
    new session may succeed.
    """
    message = failed.diag.message_primary or " ".join(str(failed).split())
    text = f"{doing}: {message} ({failed.sqlstate or type(failed).__name__})"
    if isinstance(failed, errors.InsufficientPrivilege):
        return AccessRefused(f"{text}. Grant it to the user of destination.connection")
    if isinstance(failed, errors.UniqueViolation):
        return ForeignWriter(
            f"{text} {failed.diag.message_detail or ''} Somebody else writes to the table: stop the"
            " other writer; then copy to a new destination.topic, or delete these rows"
        )
    if isinstance(failed, psycopg.DataError | psycopg.IntegrityError | errors.ProgramLimitExceeded):
        return RecordRefused(
            f"{text}. Leave such records out with filter.function, or change the table"
        )
    if isinstance(failed, errors.UndefinedTable):
        return StageFailed(
            f"{text}. The next start creates it again, and copies from the beginning"
        )
    if isinstance(failed, errors.InvalidSchemaName):
        return TopicsUnfit(f"{text}. Create it, or correct the schema in destination.options")
    if isinstance(failed, psycopg.OperationalError | psycopg.InterfaceError) or (
        failed.sqlstate or ""
    ).startswith("25"):
        return ClusterUnreachable(text)
    if isinstance(failed, psycopg.ProgrammingError | psycopg.NotSupportedError):
        return TopicsUnfit(f"{text}. Change the table, or name another destination.topic")
    return StageFailed(text)
