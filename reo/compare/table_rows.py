"""The copy in PostgreSQL as `reo verify` reads it: the rows of a table ordered by source offset,
as messages whose offset is the source's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from typing import cast

import psycopg
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message
from psycopg import sql

from common import postgresql
from common.errors import TopicMissing
from common.records import Consumed
from common.routes import TopicPartition
from common.settings import Settings

SELECT = """
SELECT source_offset, timestamp_ms, key, value, header_names, header_values FROM {}
WHERE partition = %s AND source_offset >= %s ORDER BY source_offset"""
LAST_PARTITION = "SELECT max(partition) FROM {}"
FETCH_ROWS = 1000


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
                for source_offset, timestamp_ms, key, value, header_names, header_values in cursor:
                    yield cast(
                        Consumed,
                        Message(
                            topic=tp.topic,
                            partition=tp.partition,
                            offset=source_offset,
                            key=key,
                            value=value,
                            headers=list(zip(header_names or [], header_values or [], strict=True)),
                            timestamp=(TIMESTAMP_NOT_AVAILABLE, timestamp_ms),
                        ),
                    )
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
