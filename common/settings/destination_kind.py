"""The settings of a destination outside Kafka: PostgreSQL (`destination.postgresql`) or a user's
class (`destination.class`); and which settings contradict it.

With PostgreSQL, each destination topic is a table of the same name. Everything else stays in the
destination cluster: the intermediate topic, the group, and in its commits a copy of the frontiers,
so that the commands read them in one place (`deduplicator.tables.postgresql_destination`). Only
`common.postgresql` connects to the database. It is imported only when the settings name a database,
so that other copies need no driver.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from common import partition_mapping
from common.errors import SettingsInvalid
from common.routes import SAME
from common.topic_rules import build_routes

if TYPE_CHECKING:
    from common.settings import Settings

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


def find_errors(settings: Settings) -> Iterator[str]:
    """One message for each setting that contradicts PostgreSQL or a user's class as the
    destination.
    """
    if settings.destination.options and not settings.destination.class_:
        yield f"{DESTINATION_OPTIONS} would not be used: {DESTINATION_CLASS} is not set"
    if not is_postgresql(settings) and settings.destination.postgresql_schema != "public":
        yield f"{POSTGRESQL_SCHEMA} would not be used: {POSTGRESQL} is not set"
    if is_postgresql(settings) and settings.destination.class_:
        yield f"{POSTGRESQL} and {DESTINATION_CLASS}: records go to one of them"
    elif is_postgresql(settings):
        yield from _list_connection_errors(settings.destination.postgresql)
        if (
            not settings.destination.postgresql_schema
            or len(settings.destination.postgresql_schema.encode()) > NAME_BYTES_MAX
        ):
            yield f"{POSTGRESQL_SCHEMA}: a name of 1 to {NAME_BYTES_MAX} bytes is expected"
        yield from (
            reason
            for route in build_routes(settings.rules, ())
            if (reason := describe_name_error(route.destination_topic))
        )
        yield from _list_kafka_only_settings(settings, POSTGRESQL)
    elif settings.destination.class_:
        if not partition_mapping.FUNCTION.fullmatch(settings.destination.class_):
            yield (
                f"{DESTINATION_CLASS}: module:Class is expected, not"
                f" {settings.destination.class_!r}"
            )
        yield from _list_kafka_only_settings(settings, DESTINATION_CLASS)


def _list_kafka_only_settings(settings: Settings, name: str) -> Iterator[str]:
    """One message for each setting that needs a destination topic."""
    if any(rule.mapping != SAME or rule.is_many_to_one for rule in settings.rules) or any(
        route.shared for route in build_routes(settings.rules, ())
    ):
        yield (
            f"{name} and a mapping, or a destination of several sources: a row is identified by its"
            " source partition and offset, so a table has one source"
        )
    if settings.failover:
        yield (
            f"{name} and source.mode=failover: a candidate is identified by the records of the"
            " destination topic"
        )
    if settings.filter.on_error == "park":
        yield (
            f"{name} and filter.on_error=park: parked records are written to a topic in the"
            " transaction of the others"
        )
    if settings.topics.sync:
        yield f"{name} and topics.sync: there is no destination topic"
    if settings.offsets.sync_groups:
        yield f"{name} and offsets.sync_groups: only a destination topic has consumer groups"
    if settings.provenance.header:
        yield (
            f"{name} and provenance.header: nothing is copied back from a database, and records"
            " that came from the destination cluster would be left out"
        )
    if settings.destination.zero_timestamp != "refuse":
        yield (
            f"destination.zero_timestamp would not be used: with {name} timestamp 0 is written as"
            " it is"
        )
    if settings.destination.producer_options:
        yield (
            f"destination.producer_options would not be used: with {name} stage two has no producer"
        )


def _list_connection_errors(connection: str) -> Iterator[str]:
    """Check the connection string. The message does not repeat it: it can contain a password."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        conninfo_to_dict(connection)
    except psycopg.Error:
        yield (
            f"{POSTGRESQL}: a connection string of libpq is expected, like host=… dbname=… user=…"
            " password=… or postgresql://user:password@host/dbname"
        )
