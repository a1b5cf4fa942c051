"""PostgreSQL as a destination: `destination.class=deduplicator.postgresql:PostgresqlStore`.

store.py           the interface (`deduplicator.own_destination.Store`)
session.py         a connection that shows that it waits, and its errors
table_creation.py  the tables, and what they have to be like; table_checks.py: what `reo check`
                   asks
frontier_rows.py   the rows with the positions, and their fences
rows.py            records as rows, in COPY's binary format
"""

from deduplicator.postgresql.store import PostgresqlStore

__all__ = ["PostgresqlStore"]
