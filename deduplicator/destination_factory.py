"""Builds the destination that the settings name, with its frontier store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from confluent_kafka import TopicPartition

from common.kafka import copied_configs, topics
from common.kafka.clients import LossCounter, create_transactional_producer
from common.liveness import Liveness
from common.routes import Route
from common.settings import Settings, destination_kind
from deduplicator import compiled_path
from deduplicator.destination import Destination
from deduplicator.destination_watch import DestinationWatch
from deduplicator.frontiers.committed_frontiers import WorkerGroup
from deduplicator.frontiers.frontier_store import FrontierStore, KafkaFrontierStore
from deduplicator.frontiers.stored_frontiers import StoredFrontiers
from deduplicator.kafka_destination import BATCH_BYTES_MAX, KafkaDestination
from deduplicator.own_destination import StoreClient
from deduplicator.stored_destination import StoredDestination
from deduplicator.transactions.producer_pair import ProducerPair
from deduplicator.transactions.transactional_producer import TransactionalProducer

WAITS_S = 5.0
"""A call of a store that takes longer is reported as waiting for it."""


def build_destination(
    settings: Settings,
    number: int,
    routes: Mapping[str, Route],
    consumer_group: WorkerGroup,
    commit_for_group: Callable[[Sequence[TopicPartition]], None],
) -> tuple[Destination, FrontierStore]:
    """For one worker; routes are added to `routes` later. `commit_for_group` commits offsets for
    the group, where they are not part of the transaction.
    """
    if destination_kind.is_outside_kafka(settings):
        liveness = consumer_group.liveness

        def on_wait(waited_s: float) -> None:
            if waited_s > WAITS_S:
                liveness.report_waiting("database")
            else:
                liveness.beat()

        client = StoreClient(settings, f"deduplicator-{number}", on_wait)
        return StoredDestination(client, commit_for_group), StoredFrontiers(
            settings, client, routes, consumer_group
        )
    describe_config = partial(
        topics.describe_config,
        consumer_group.admin,
        settings.destination_cluster,
        timeout_s=settings.connect_timeout_s,
    )
    batch_bytes_max = min(
        (
            copied_configs.get_max_message_bytes(describe_config(name))
            for name in {route.destination_topic for route in routes.values()}
        ),
        default=BATCH_BYTES_MAX,
    )
    return KafkaDestination(
        _create_producers(settings, number, batch_bytes_max, consumer_group.liveness),
        DestinationWatch(consumer_group.admin),
        describe_config,
        batch_bytes_max,
        compiled_path.find_disabled_reason(settings, ()) is None,
    ), KafkaFrontierStore(consumer_group)


def _create_producers(
    settings: Settings, number: int, batch_bytes_max: int, liveness: Liveness
) -> ProducerPair:
    timeout_s = settings.deduplicator.transaction_timeout_ms / 1000

    def create_producer(letter: str) -> TransactionalProducer:
        lost = LossCounter(f"librdkafka.deduplicator-{number}-{letter}")
        make = partial(
            create_transactional_producer, settings, number, letter, batch_bytes_max, lost
        )
        return TransactionalProducer(make, timeout_s, liveness, lost.count_losses)

    return ProducerPair(create_producer("a"), create_producer("b"))
