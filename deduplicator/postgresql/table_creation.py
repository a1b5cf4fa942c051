"""The tables of a copy: created where they are missing, checked where they exist.

A frontier belongs to the rows that it counts: with a table that is missing, the frontiers of its
topic are deleted, so its copy begins anew.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from psycopg import sql

from common.errors import TopicsUnfit
from common.routes import Route
from deduplicator.postgresql.frontier_rows import FrontierTable
from deduplicator.postgresql.rows import COLUMNS, PRIMARY_KEY
from deduplicator.postgresql.session import Session, has_relation, quote_table

log = logging.getLogger(__name__)
CREATE_LOCK = 0x72656F
"""The key of the advisory lock under which tables are created: without it, two workers that create
one at once would fail.
"""
CREATE_FRONTIERS = """CREATE TABLE {} (application text, intermediate_topic text,
    partition integer, next_offset bigint NOT NULL, frontier text NOT NULL, fence bigint NOT NULL,
    PRIMARY KEY (application, intermediate_topic, partition))"""
CREATE_TABLE = (
    f"CREATE TABLE {{}} ({', '.join(f'{name} {kind}' for name, kind in COLUMNS.items())}, PRIMARY"
    f" KEY ({', '.join(PRIMARY_KEY)}))"
)
FORGET = "DELETE FROM {} WHERE application = %s AND intermediate_topic = %s"
SHAPE = """SELECT relpersistence::text,
    (SELECT array_agg(attname || ' ' || format_type(atttypid, atttypmod)) FROM pg_attribute
        WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped),
    EXISTS (SELECT FROM pg_index i WHERE indrelid = c.oid AND indisunique AND indpred IS NULL AND
        (SELECT array_agg(attname::text ORDER BY attname) FROM pg_attribute
            WHERE attrelid = c.oid AND attnum = ANY(i.indkey)) = %s::text[])
    FROM pg_class c WHERE oid = to_regclass(%s)"""


def create_tables(
    session: Session, frontiers: FrontierTable, schema: str, routes: Collection[Route]
) -> None:
    """Create the missing tables; delete frontiers of a missing one: it was deleted."""
    names = [(route, quote_table(schema, route.destination_topic)) for route in routes]
    if not all(has_relation(session, name) for name in (frontiers.name, *dict(names).values())):
        with session.transaction():
            session.execute("SELECT pg_advisory_xact_lock(%s)", [CREATE_LOCK])
            if not has_relation(session, frontiers.name):
                session.execute(sql.SQL(CREATE_FRONTIERS).format(frontiers.name))
            for route, name in names:
                if not has_relation(session, name):
                    log.info("creating the table %s", route.destination_topic)
                    session.execute(sql.SQL(CREATE_TABLE).format(name))
                    session.execute(
                        sql.SQL(FORGET).format(frontiers.name),
                        [frontiers.application, route.intermediate_topic],
                    )
    for _, name in names:
        check_columns(session, name)


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
