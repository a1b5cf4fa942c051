"""The destination of one route to a table, taken over as a start does it, and its transactions one
by one.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from confluent_kafka import TopicPartition as ClientTopicPartition

from common.frontier import Frontier
from common.liveness import Liveness
from common.routes import Route, TopicPartition
from common.settings import load
from deduplicator.destination import DestinationState
from deduplicator.tables.postgresql_destination import PostgresqlDestination
from deduplicator.tables.table_frontier_store import TableFrontierStore
from tests.harness.postgresql import Server

FRONTIER = Frontier(9, 1, "identity", 1, "postgresql", -1, 0).encode()
SLOW = """CREATE FUNCTION "Other schema".slow() RETURNS trigger LANGUAGE plpgsql
    AS $$ BEGIN PERFORM pg_sleep(0.05); RETURN NEW; END $$"""
"""A trigger's function: each row takes its time."""


def take_over(database: Server, name: str) -> PostgresqlDestination:
    """The destination of a source of this name, in a schema that has a blank in its name."""
    database.ask('CREATE SCHEMA IF NOT EXISTS "Other schema"')
    given = load(
        {
            "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1",
            "REO_DESTINATION_BOOTSTRAP_SERVERS": "b:1",
            "REO_DESTINATION_POSTGRESQL": database.connection(),
            "REO_DESTINATION_POSTGRESQL_SCHEMA": "Other schema",
            "REO_SOURCE_TOPIC": name,
        }
    )
    consumer_group = SimpleNamespace(liveness=Liveness("test"), load_commits=lambda *_: {})
    frontier_store = TableFrontierStore(
        given, 0, {f"{name}-proxy": Route(name, name, f"{name}-proxy")}, cast(Any, consumer_group)
    )
    made = PostgresqlDestination(frontier_store, lambda _: None)
    frontier_store.load_frontiers([TopicPartition(f"{name}-proxy", 0)])
    made.outputs[TopicPartition(name, 0)] = DestinationState(-1, 0)
    return made


def transact(
    destination: PostgresqlDestination, records: list[Any], frontier: str = "{}", first: int = 10
) -> None:
    """Write and commit."""
    (tp,) = destination.outputs
    destination.begin()
    if records:
        destination.write(tp, records, [first + number for number in range(len(records))])
    destination.send_offsets(
        lambda: [ClientTopicPartition(f"{tp.topic}-proxy", 0, 5, frontier)], None
    )
    destination.start_commit()


def rows(destination: PostgresqlDestination, database: Server) -> list[Any]:
    """What is there."""
    (tp,) = destination.outputs
    return database.ask(
        'SELECT partition, source_offset, key, header_names, header_values FROM "Other'
        f' schema"."{tp.topic}" ORDER BY 2'
    )


def resume_after_failure(destination: PostgresqlDestination, known: int) -> None:
    """As the loop does after a failure: the frontiers are taken over with a new session."""
    (tp,) = destination.outputs
    destination.resolve_in_doubt()
    destination.frontier_store.load_frontiers([TopicPartition(f"{tp.topic}-proxy", 0)])
    destination.outputs[tp] = DestinationState(known, 0)
