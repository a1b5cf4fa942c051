"""The copy in PostgreSQL as `reo verify` reads it: the rows of a table ordered by source offset,
with the interface of consumed messages.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from typing import NamedTuple

import psycopg
from psycopg import sql

from common import postgresql
from common.errors import TopicMissing
from common.records import Consumed, Headers
from common.routes import TopicPartition
from common.settings import Settings

SELECT = """
SELECT source_offset, timestamp_ms, key, value, header_names, header_values FROM {}
WHERE partition = %s AND source_offset >= %s ORDER BY source_offset"""
LAST_PARTITION = "SELECT max(partition) FROM {}"
FETCH_ROWS = 1000


class Columns(NamedTuple):
    """The columns of SELECT."""

    source_offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    header_names: list[str] | None
    header_values: list[bytes | None] | None


class TableRow:
    """A row with the interface of `common.records.Consumed`; its offset is the source's."""

    def __init__(self, tp: TopicPartition, columns: Columns) -> None:
        self.tp = tp
        self.columns = columns

    def topic(self) -> str:
        """The table's name."""
        return self.tp.topic

    def partition(self) -> int:
        """The source partition."""
        return self.tp.partition

    def offset(self) -> int:
        """The source offset."""
        return self.columns.source_offset

    def key(self) -> bytes | None:
        """None for a null key."""
        return self.columns.key

    def value(self) -> bytes | None:
        """None for a tombstone."""
        return self.columns.value

    def headers(self) -> Headers | None:
        """In their order."""
        return list(
            zip(self.columns.header_names or [], self.columns.header_values or [], strict=True)
        )

    def timestamp(self) -> tuple[int, int]:
        """The timestamp type is not stored: always 0."""
        return 0, self.columns.timestamp_ms

    def leader_epoch(self) -> None:
        """None: a row has none."""

    def error(self) -> None:
        """None: a row is never an error event."""


def open_tables(settings: Settings) -> Callable[[TopicPartition, int], Generator[Consumed]]:
    """Connect; returns what reads the rows of a partition from a source offset on."""
    session = postgresql.connect(settings, "verify", settings.connect_timeout_s)

    def read_rows(tp: TopicPartition, begin: int) -> Generator[Consumed]:
        try:
            with session.transaction(), session.cursor(name="verify") as cursor:
                cursor.itersize = FETCH_ROWS
                cursor.execute(
                    sql.SQL(SELECT).format(postgresql.quote_table(settings, tp.topic)),
                    [tp.partition, begin],
                    binary=True,
                )
                for row in cursor:
                    yield TableRow(tp, Columns(*row))
        except psycopg.Error as error:
            raise postgresql.translate(error, f"reading the table of {tp}") from None

    return read_rows


def count_partitions(settings: Settings, names: Collection[str]) -> dict[str, int]:
    """The number of partitions in each table: the highest one that has a row, and 1. TopicMissing
    when one of the tables does not exist.
    """
    session = postgresql.connect(settings, "verify", settings.connect_timeout_s)
    try:
        for name in names:
            if not postgresql.has_relation(session, postgresql.quote_table(settings, name)):
                raise TopicMissing(f"the table {name} does not exist: nothing was copied to it yet")
        last = {
            name: (
                session.execute(
                    sql.SQL(LAST_PARTITION).format(postgresql.quote_table(settings, name))
                ).fetchone()
            )
            for name in names
        }
    except psycopg.Error as error:
        raise postgresql.translate(error, f"reading the tables {', '.join(names)}") from None
    finally:
        session.close()
    return {name: row[0] + 1 if row and row[0] is not None else 0 for name, row in last.items()}
