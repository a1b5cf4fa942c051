"""PostgreSQL as a destination: `destination.class=deduplicator.postgresql:PostgresqlStore`.

store.py           the interface (`deduplicator.own_destination.Store`)
session.py         a connection that shows that it waits, and its errors
table_creation.py  the tables, and what they have to be like; table_checks.py: what `reo check`
                   asks
frontier_rows.py   the rows with the positions, and their fences
rows.py            records as rows, in COPY's binary format
"""

from common.errors import SettingsInvalid

try:
    from deduplicator.postgresql.store import PostgresqlStore
except ModuleNotFoundError as missing:
    if missing.name != "psycopg":
        raise
    raise SettingsInvalid(
        "destination.class deduplicator.postgresql:PostgresqlStore needs the package psycopg:"
        " install reo with its extra `postgresql` (pipx install --force '.[postgresql]')"
    ) from None

__all__ = ["PostgresqlStore"]
