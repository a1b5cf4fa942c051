"""A real PostgreSQL server as a child process, that can be killed and started again; and the
judge's eyes on its tables.

From Debian's packages (`make postgresql`). It refuses to run as root, so where the tests do, it
runs as the user that the package made. It listens on 127.0.0.1 and asks for a password (SCRAM).
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from tests.harness.copy_judge import Partitions, Record
from tests.harness.kafka import until
from tools.demo.broker import free_port
from tools.demo.process import start_process

USER, PASSWORD, DATABASE = "reo", "pass'word\\ of 1_000", "postgres"
"""A quote, a backslash and a blank: what connection strings get wrong."""
STARTS_IN_S = 60
STORE = "deduplicator.postgresql:PostgresqlStore"


def programs() -> Path:
    """Where initdb and postgres are; the newest that is installed."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3])
    )
    assert found, "there is no PostgreSQL: run `make postgresql`"
    return found[-1].parent


def quote_value(text: str) -> str:
    """As a value in libpq's connection string."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


@dataclass
class Server:
    """One cluster in a folder of its own, which goes with it."""

    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="reo-postgresql-")))
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def make(self) -> Server:
        """Make the cluster."""
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        for path in (self.folder, secret):
            os.chown(path, *self._whose[:2])
        done = subprocess.run(
            [
                programs() / "initdb",
                "-D",
                self.folder / "data",
                "-U",
                USER,
                f"--pwfile={secret}",
                "-A",
                "scram-sha-256",
                "-E",
                "UTF8",
                "--no-locale",
                "--no-sync",
            ],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            **self._as_user,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return self

    def start(self) -> Server:
        """Start it; returns when it answers."""
        self.process = start_process(
            [
                programs() / "postgres",
                "-D",
                self.folder / "data",
                "-p",
                str(self.port),
                "-c",
                "listen_addresses=127.0.0.1",
                "-c",
                "unix_socket_directories=",
            ],
            self.folder / "log",
            cwd=self.folder,
            **self._as_user,
        )
        until(self.answers, f"the server answers: {self.folder / 'log'}", STARTS_IN_S)
        return self

    def answers(self) -> bool:
        """Whether one can connect."""
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
        try:
            session = self._try_to_connect()
        except psycopg.OperationalError:
            return False
        if session is not None:
            session.close()
        return session is not None

    def stop_at_once(self) -> None:
        """Immediate shutdown: no session is ended in order, nothing is flushed; the next start
        recovers from the log.
        """
        assert self.process is not None
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(30)

    def end(self) -> None:
        """Stop it and delete everything."""
        if self.process is not None and self.process.poll() is None:
            self.stop_at_once()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def log(self) -> str:
        """What the server has said."""
        return (self.folder / "log").read_text(errors="replace")

    def settings(self, connection: str = "") -> dict[str, str]:
        """Those of a copy to this database."""
        return {
            "destination_class": STORE,
            "destination_connection": connection or self.connection(),
        }

    def connection(self, password: str = PASSWORD, user: str = USER) -> str:
        """For `destination.connection`."""
        return (
            f"host=127.0.0.1 port={self.port} dbname={DATABASE} user={user}"
            f" password={quote_value(password)}"
        )

    def session(self) -> psycopg.Connection[TupleRow]:
        """The test's own; again, when the machine stood still over the first attempt."""
        return until(self._try_to_connect, "the server takes a session", STARTS_IN_S)

    def _try_to_connect(self) -> psycopg.Connection[TupleRow] | None:
        """None when there is no answer in time; OperationalError when nobody listens."""
        try:
            return psycopg.connect(
                self.connection(), autocommit=True, connect_timeout=5, application_name="test"
            )
        except psycopg.errors.ConnectionTimeout:
            return None

    def ask(self, query: str, *values: object) -> list[Any]:
        """The rows of an answer; none of a command."""
        with self.session() as session:
            cursor = session.execute(query, values)
            return cursor.fetchall() if cursor.description else []

    def read(self, table: str, partitions: int) -> Partitions:
        """What the judge sees: each partition's rows in the order of their source offsets."""
        found: Partitions = {partition: [] for partition in range(partitions)}
        with self.session() as session:
            rows = session.execute(
                sql.SQL(
                    "SELECT partition, timestamp_ms, key, value, header_names, header_values FROM"
                    " {} ORDER BY partition, source_offset"
                ).format(sql.Identifier(table))
            )
            for partition, timestamp_ms, key, value, names, values in rows:
                found[partition].append(
                    Record(
                        key, value, tuple(zip(names or [], values or [], strict=True)), timestamp_ms
                    )
                )
        return found

    def offsets(self, table: str) -> list[tuple[int, int]]:
        """The places of all rows; empty when there is no such table."""
        with self.session() as session:
            try:
                rows = session.execute(
                    sql.SQL("SELECT partition, source_offset FROM {} ORDER BY 1, 2").format(
                        sql.Identifier(table)
                    )
                )
                return [(partition, source_offset) for partition, source_offset in rows]
            except psycopg.errors.UndefinedTable:
                return []

    @property
    def _whose(self) -> tuple[int, int, bool]:
        """Who runs it, and whether that is somebody else than we."""
        if os.geteuid() != 0:
            return os.geteuid(), os.getegid(), False
        user = pwd.getpwnam("postgres")
        return user.pw_uid, user.pw_gid, True

    @property
    def _as_user(self) -> dict[str, Any]:
        uid, gid, other = self._whose
        return {"user": uid, "group": gid, "extra_groups": []} if other else {}
