"""Builds the destination that the settings name, with its frontier store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from confluent_kafka import TopicPartition

from common.kafka import topics
from common.kafka.clients import LossCounter, create_transactional_producer
from common.routes import Route
from common.settings import Settings, destination_kind
from deduplicator import compiled_path
from deduplicator.destination import Destination
from deduplicator.destination_watch import DestinationWatch
from deduplicator.frontiers.committed_frontiers import ConsumerGroup
from deduplicator.frontiers.frontier_store import FrontierStore, KafkaFrontierStore
from deduplicator.kafka_destination import KafkaDestination
from deduplicator.transactions.producer_pair import ProducerPair
from deduplicator.transactions.transactional_producer import TransactionalProducer

BATCH_BYTES_MAX = 1_048_588
"""A topic's default max.message.bytes, used while there is no topic."""


def build_destination(
    settings: Settings,
    number: int,
    routes: Mapping[str, Route],
    consumer_group: ConsumerGroup,
    commit_for_group: Callable[[Sequence[TopicPartition]], None],
) -> tuple[Destination, FrontierStore]:
    """For one worker; routes are added to `routes` later. `commit_for_group` commits offsets for
    the group, where they are not part of the transaction.
    """
    if destination_kind.is_postgresql(settings):
        from deduplicator.tables.postgresql_destination import PostgresqlDestination
        from deduplicator.tables.table_frontier_store import TableFrontierStore

        frontier_store = TableFrontierStore(settings, number, routes, consumer_group)
        return PostgresqlDestination(frontier_store, commit_for_group), frontier_store
    if settings.destination.class_:
        from deduplicator.frontiers.own_frontier_store import OwnFrontierStore
        from deduplicator.own_destination_writer import OwnDestination

        own_store = OwnFrontierStore(settings, routes, consumer_group)
        return OwnDestination(own_store, commit_for_group), own_store
    producers, batches_fit = _create_producers(settings, number, routes.values(), consumer_group)
    is_compiled = compiled_path.find_disabled_reason(settings, ()) is None
    return KafkaDestination(
        producers, DestinationWatch(consumer_group.admin), batches_fit, is_compiled
    ), KafkaFrontierStore(consumer_group)


def _create_producers(
    settings: Settings,
    number: int,
    routes: Collection[Route],
    consumer_group: ConsumerGroup,
) -> tuple[ProducerPair, Callable[[Collection[Route]], bool]]:
    """Two producers, and a function: whether their batches fit the destination topics of more
    routes.
    """
    timeout_s = settings.deduplicator.transaction_timeout_ms / 1000
    batch_bytes_max = _find_batch_bytes_max(consumer_group, routes)

    def create_producer(letter: str) -> TransactionalProducer:
        lost = LossCounter(f"librdkafka.deduplicator-{number}-{letter}")
        make = partial(
            create_transactional_producer, settings, number, letter, batch_bytes_max, lost
        )
        return TransactionalProducer(make, timeout_s, consumer_group.liveness, lost.count_losses)

    return (
        ProducerPair(create_producer("a"), create_producer("b")),
        lambda more: _find_batch_bytes_max(consumer_group, more) >= batch_bytes_max,
    )


def _find_batch_bytes_max(consumer_group: ConsumerGroup, routes: Collection[Route]) -> int:
    limits = (
        topics.get_message_bytes_max(
            consumer_group.admin,
            consumer_group.settings.destination_cluster,
            route.destination_topic,
            consumer_group.settings.connect_timeout_s,
        )
        for route in routes
    )
    return min(limits, default=BATCH_BYTES_MAX)
