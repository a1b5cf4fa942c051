"""Which destination the settings name: made here, with its keeper, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from confluent_kafka import TopicPartition

from common import tables, topics
from common.kafka_clients import LossCounter, transactional_producer
from common.routes import Route
from common.settings import Settings
from deduplicator.destination import Destination, KafkaDestination
from deduplicator.destination_watch import DestinationWatch
from deduplicator.keeper import InGroup, KafkaKeeper, Keeper
from deduplicator.transaction import InTurn, TransactionalProducer

BATCH_BYTES_MAX = 1_048_588
"""Of a topic, by default (max.message.bytes): while there is none to ask."""


def made(settings: Settings, number: int, routes: Mapping[str, Route], in_group: InGroup,
         repeat: Callable[[Sequence[TopicPartition]], None]) -> tuple[Destination, Keeper]:
    """For one worker; `routes` grows. `repeat` commits offsets for the group, where they are not part of the transaction."""
    if tables.named(settings):
        from deduplicator.postgresql import PostgresqlDestination
        from deduplicator.table_keeper import TableKeeper

        keeper = TableKeeper(settings, number, routes, in_group)
        return PostgresqlDestination(keeper, repeat), keeper
    producers, fit = _producers(settings, number, routes.values(), in_group)
    return KafkaDestination(producers, DestinationWatch(in_group.admin), fit), KafkaKeeper(in_group)


def _producers(settings: Settings, number: int, routes: Collection[Route], in_group: InGroup) -> tuple[InTurn, Callable[[Collection[Route]], bool]]:
    """Two, and whether they fit the destination topics of further routes."""
    timeout_s = settings.number("deduplicator.transaction_timeout_ms") / 1000
    batch_bytes_max = _batch_bytes_max(in_group, routes)

    def producer(letter: str) -> TransactionalProducer:
        lost = LossCounter(f"librdkafka.deduplicator-{number}-{letter}")
        make = partial(transactional_producer, settings, number, letter, batch_bytes_max, lost)
        return TransactionalProducer(make, timeout_s, in_group.pulse, lost.count_losses)
    return InTurn(producer("a"), producer("b")), lambda more: _batch_bytes_max(in_group, more) >= batch_bytes_max


def _batch_bytes_max(in_group: InGroup, routes: Collection[Route]) -> int:
    return min((topics.bytes_max(in_group.admin, in_group.settings.destination, route.destination_topic) for route in routes), default=BATCH_BYTES_MAX)
