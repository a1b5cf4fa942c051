"""The settings of a destination outside Kafka: PostgreSQL (`destination.postgresql`) or a user's
class (`destination.class`).

With PostgreSQL, each destination topic is a table of the same name. Everything else stays in the
destination cluster: the intermediate topic, the group, and in its commits a copy of the frontiers,
so that the commands read them in one place (`deduplicator.tables.postgresql_destination`). Only
`common.postgresql` connects to the database. It is imported only when the settings name a database,
so that other copies need no driver.
"""

from __future__ import annotations

from common.errors import SettingsInvalid
from common.settings.settings import Settings

POSTGRESQL = "destination.postgresql"
DESTINATION_CLASS = "destination.class"
"""A user's own class instead of a database (`deduplicator.own_destination`)."""
DESTINATION_OPTIONS = "destination.options"
POSTGRESQL_SCHEMA = "destination.postgresql_schema"
FRONTIER_TABLE = "reo_frontier"
"""The table with the frontiers."""
NAME_BYTES_MAX = 63
"""The longest identifier (NAMEDATALEN - 1). PostgreSQL truncates a longer one without an error, so
two topics could become one table.
"""


def is_postgresql(settings: Settings) -> bool:
    """Whether records go to tables."""
    return bool(settings.destination.postgresql)


def is_outside_kafka(settings: Settings) -> bool:
    """Whether records go to tables or to a user's own class, and there is no destination topic."""
    return is_postgresql(settings) or bool(settings.destination.class_)


def refuse_command(settings: Settings, command: str, reason: str) -> None:
    """SettingsInvalid for a command that needs a destination topic."""
    if settings.destination.class_:
        raise SettingsInvalid(
            f"`{command}` cannot be used with {DESTINATION_CLASS}: only that class can read what it"
            " has stored"
        )
    if is_postgresql(settings):
        raise SettingsInvalid(f"`{command}` cannot be used with {POSTGRESQL}: {reason}")


def get_zero_timestamp_ms(settings: Settings) -> int | None:
    """The timestamp that replaces timestamp 0; None when the destination cannot store 0 and the
    settings allow no replacement.
    """
    if is_outside_kafka(settings):
        return 0
    return 1 if settings.destination.zero_timestamp == "one" else None


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
