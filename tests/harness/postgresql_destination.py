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
from deduplicator.destination import Output
from deduplicator.frontiers.stored_frontiers import StoredFrontiers
from deduplicator.own_destination import StoreClient
from deduplicator.postgresql import PostgresqlStore
from deduplicator.stored_destination import StoredDestination
from tests.harness.postgresql import STORE, Server

FRONTIER = Frontier(9, 1, "identity", 1, "postgresql", -1, 0).encode()
SLOW = """CREATE FUNCTION "Other schema".slow() RETURNS trigger LANGUAGE plpgsql
    AS $$ BEGIN PERFORM pg_sleep(0.05); RETURN NEW; END $$"""
"""A trigger's function: each row takes its time."""


class TableDestination(StoredDestination):
    """With the only partition that is written, and what is known of its table."""

    tp: TopicPartition
    output: Output
    frontiers: StoredFrontiers

    @property
    def store(self) -> PostgresqlStore:
        """The class itself."""
        return cast(PostgresqlStore, self.client.store)


def take_over(database: Server, name: str) -> TableDestination:
    """The destination of a source of this name, in a schema that has a blank in its name."""
    database.ask('CREATE SCHEMA IF NOT EXISTS "Other schema"')
    given = load(
        {
            "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1",
            "REO_DESTINATION_BOOTSTRAP_SERVERS": "b:1",
            "REO_DESTINATION_CLASS": STORE,
            "REO_DESTINATION_CONNECTION": database.connection(),
            "REO_DESTINATION_OPTIONS": '{"schema": "Other schema"}',
            "REO_SOURCE_TOPIC": name,
        }
    )
    consumer_group = SimpleNamespace(liveness=Liveness("test"), load_commits=lambda *_: {})
    made = TableDestination(StoreClient(given, "test"), lambda _: None)
    routes = {f"{name}-proxy": Route(name, name, f"{name}-proxy")}
    made.frontiers = StoredFrontiers(given, made.client, routes, cast(Any, consumer_group))
    made.frontiers.load_frontiers([TopicPartition(f"{name}-proxy", 0)])
    made.tp, made.output = TopicPartition(name, 0), Output(-1, 0)
    return made


def transact(
    destination: TableDestination, records: list[Any], frontier: str = "{}", first: int = 10
) -> None:
    """Write and commit."""
    tp = destination.tp
    destination.begin()
    if records:
        source_offsets = [first + number for number in range(len(records))]
        destination.output = destination.write(tp, records, tp, source_offsets, destination.output)
    destination.send_offsets([ClientTopicPartition(f"{tp.topic}-proxy", 0, 5, frontier)], None)
    destination.start_commit()


def rows(destination: TableDestination, database: Server) -> list[Any]:
    """What is there."""
    return database.ask(
        'SELECT partition, source_offset, key, header_names, header_values FROM "Other'
        f' schema"."{destination.tp.topic}" ORDER BY 2'
    )


def resume_after_failure(destination: TableDestination, known: int) -> None:
    """As the loop does after a failure: the frontiers are taken over with a new session."""
    destination.resolve_in_doubt()
    destination.frontiers.load_frontiers([TopicPartition(f"{destination.tp.topic}-proxy", 0)])
    destination.output = Output(known, 0)
