"""The confluent-kafka clients, each with its safety options and why.

librdkafka's defaults favour throughput and convenience: a consumer starts at the end, commits
automatically, and clients give up after a while. Every option that matters for safety is set here.

No client is created elsewhere. `use_clients` replaces the client classes for the whole interpreter,
so a simulator can run the service's own processes on a Kafka of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from common.errors import SettingsInvalid
from common.kafka import client_watch, msk_iam, tls_probe
from common.kafka.client_errors import note_error, note_throttling
from common.settings import Settings, client_options
from common.settings.clusters import Cluster

Result = TypeVar("Result")
BATCH_OVERHEAD_BYTES = 512
"""Framing around the records of a batch (61 bytes in message format v2), generously."""


class ClientFactories(NamedTuple):
    """What creates the clients: each factory takes librdkafka's options and returns a client."""

    consumer: Callable[[dict[str, Any]], Consumer]
    producer: Callable[[dict[str, Any]], Producer]
    admin_client: Callable[[dict[str, Any]], AdminClient]
    has_tls_listener: Callable[[str], bool] = tls_probe.has_tls_listener
    """Tried for addresses that do not answer a client."""


_factories = ClientFactories(
    partial(client_watch.create_watched, client_watch.Consumer),
    partial(client_watch.create_watched, client_watch.Producer),
    partial(client_watch.create_watched, AdminClient),
)


def use_clients(clients: ClientFactories) -> ClientFactories:
    """Create all clients of this interpreter with these; returns the previous factories."""
    global _factories
    before, _factories = _factories, clients
    return before


def has_tls_listener(address: str) -> bool:
    """Whether TLS is spoken at an address that does not answer a client."""
    return _factories.has_tls_listener(address)


class LossCounter:
    """A client's logger that counts what the client lost: connections, and requests without an
    answer in time.

    librdkafka resends such requests by itself and reports that only in its log. It logs the line
    before it resends the request, so the loss is counted before the call returns.
    """

    OPTIONS: ClassVar[dict[str, Any]] = {"debug": "broker", "log_level": 7}
    """What a client has to log. At INFO, librdkafka leaves out a connection that an idle broker has
    closed, and for 30 s each loss with the same text as the one before it
    (`rd_kafka_broker_set_error`).
    """

    def __init__(self, name: str) -> None:
        self.count = 0
        self._log = logging.getLogger(name)

    def count_losses(self, client: Producer) -> int:
        """How many losses so far. The client's queued log lines are read first."""
        # a fatal error: the next call meets it too and translates it
        with suppress(KafkaException):
            client.poll(0)
        return self.count

    def log(self, level: int, form: str, facility: str, *more: object) -> None:
        """Called by confluent-kafka."""
        if facility in ("FAIL", "REQTMOUT"):
            self.count += 1
        if level >= logging.ERROR:  # as in all clients: lost connections are normal
            self._log.log(level, form, facility, *more)


def _build_base_options(cluster: Cluster, settings: Settings, role: str) -> dict[str, Any]:
    return {
        **cluster.security.build_librdkafka_options(),
        **msk_iam.build_options(cluster),
        "error_cb": partial(note_error, cluster),
        "bootstrap.servers": cluster.bootstrap_servers,
        "client.id": f"{settings.client_id}-{role}",  # for the brokers' logs and quotas
        "log_level": 3,  # errors only: disconnects are normal, and the metrics count them
        "logger": logging.getLogger(f"librdkafka.{role}"),
        # with the default, 10 s, a restarted broker would wait that long for us
        "reconnect.backoff.max.ms": 1000,
        "socket.keepalive.enable": True,
        # a missing topic is an error: a Metadata request for it must not create it
        "allow.auto.create.topics": False,
        "topic.metadata.refresh.interval.ms": 10_000,  # how soon an added partition is noticed
    }


def create_admin_client(cluster: Cluster, settings: Settings, **more: Any) -> AdminClient:
    """For descriptions, offsets, creating topics and purging."""
    # errors are in the answers, or in `Cluster.handshake_error`
    ours = {"log_level": 0, "throttle_cb": partial(note_throttling, cluster)}
    return _factories.admin_client(_build_base_options(cluster, settings, "admin") | ours | more)


def create_admin_clients(settings: Settings) -> tuple[AdminClient, AdminClient]:
    """One for the source, and one for the destination."""
    return (
        create_admin_client(settings.source_cluster, settings),
        create_admin_client(settings.destination_cluster, settings),
    )


def create_reader(cluster: Cluster, settings: Settings, **more: Any) -> Consumer:
    """A consumer outside the group, read_committed; stops at an offset that does not exist."""
    return _factories.consumer(
        _build_base_options(cluster, settings, "reader")
        | {
            "group.id": settings.application,  # never joined: only `committed` asks for it
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            # the only sign that no visible record follows: offsets also count markers and aborted
            # records
            "enable.partition.eof": True,
            # mostly one record is wanted, and a slow network also carries what follows it
            "fetch.message.max.bytes": 1_048_576,
            # the records exist already; only at the end of a partition does a fetch wait
            "fetch.wait.max.ms": 20,
            **more,
        }
    )


def create_readers(settings: Settings, **more: Any) -> tuple[Consumer, Consumer]:
    """One for the source, and one for the destination."""
    return (
        create_reader(settings.source_cluster, settings, **more),
        create_reader(settings.destination_cluster, settings, **more),
    )


def create_idempotent_producer(
    cluster: Cluster, settings: Settings, role: str, **more: Any
) -> Producer:
    """A producer for occasional records."""
    return _factories.producer(
        _build_base_options(cluster, settings, role)
        | {"enable.idempotence": True, "acks": "all"}
        | more
    )


def _create_with_options(
    kind: Callable[[dict[str, Any]], Result],
    name: str,
    raw_options: Mapping[str, str],
    ours: dict[str, Any],
) -> Result:
    """A client with raw options over ours; SettingsInvalid when the client refuses them."""
    try:
        return kind({**ours, **raw_options})
    except (KafkaException, TypeError, ValueError) as failed:
        if not raw_options:
            raise
        reason = " ".join(
            (failed.args[0].str() if isinstance(failed, KafkaException) else str(failed)).split()
        )
        shows_secret = any(
            client_options.SECRET.search(option) and value in reason
            for option, value in raw_options.items()
        )
        raise SettingsInvalid(
            f"{name} ({', '.join(sorted(raw_options))}): the client refuses these"
            f" options{'' if shows_secret else f': {reason}'}"
        ) from None


def build_instance_id(settings: Settings, worker: int) -> str:
    """A worker's name in the group and its transactional ids, for one process at a time."""
    return f"{settings.application}-{settings.instance}-{worker}"


def create_stage_two_consumer(settings: Settings, worker: int) -> Consumer:
    """The consumer of stage two: a member of the group, on the intermediate topics."""
    session_ms = settings.deduplicator.session_timeout_ms
    base = _build_base_options(settings.destination_cluster, settings, f"deduplicator-{worker}")
    return _create_with_options(
        _factories.consumer,
        "intermediate.consumer_options",
        settings.intermediate.consumer_options,
        base
        | {
            "group.id": settings.application,
            "group.protocol": "classic",
            # A static member (KIP-345): a restarted worker takes its predecessor's place at once.
            # With group.protocol=consumer the broker refuses the new one until the old one's
            # session has ended (UNRELEASED_INSTANCE_ID).
            "group.instance.id": build_instance_id(settings, worker),
            # "range" gives the first partition of every topic to the same worker
            "partition.assignment.strategy": "roundrobin",
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": session_ms // 4,
            "isolation.level": "read_committed",
            # where envelopes are gone, those that are left are as good: the rule decides
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,  # offsets are committed in the transaction
            "enable.auto.offset.store": False,
            "fetch.wait.max.ms": 100,
            "fetch.message.max.bytes": 1_048_576,
            # per partition, also where each envelope has one record: the fetcher runs ahead while
            # a transaction commits
            "queued.min.messages": 50_000,
            # when a full queue is checked again; with the default, 1 s, stage two waited a third of
            # its time (measured)
            "fetch.queue.backoff.ms": 10,
            "queued.max.messages.kbytes": 131_072,  # bounds the memory, per worker
            "max.poll.interval.ms": 600_000,
            "check.crcs": True,
        },
    )


def create_transactional_producer(
    settings: Settings, worker: int, letter: str, batch_bytes_max: int, loss_counter: LossCounter
) -> Producer:
    """One of the two producers that a worker uses in turn
    (`deduplicator.transactions.transactional_producer`).

    `batch_bytes_max` is the destination topic's max.message.bytes, which bounds a batch, not a
    record; librdkafka does not split a batch that the broker refuses.
    """
    timeout_ms = settings.deduplicator.transaction_timeout_ms
    base = _build_base_options(
        settings.destination_cluster, settings, f"deduplicator-{worker}-{letter}"
    )
    return _create_with_options(
        _factories.producer,
        "destination.producer_options",
        settings.destination.producer_options,
        base
        | {
            "logger": loss_counter,
            **LossCounter.OPTIONS,
            "transactional.id": f"{build_instance_id(settings, worker)}-{letter}",
            "transaction.timeout.ms": timeout_ms,
            "enable.idempotence": True,
            "acks": "all",
            # not longer than the transaction: what is not delivered by then is aborted and repeated
            "message.timeout.ms": timeout_ms,
            "linger.ms": 5,  # the end of a transaction does not wait for it: flush() sends at once
            "batch.num.messages": 100_000,
            "batch.size": max(1, min(1_000_000, batch_bytes_max - BATCH_OVERHEAD_BYTES)),
            # the broker's limit decides (RecordRefused), not the client's
            "message.max.bytes": 100_000_000,
            "queue.buffering.max.messages": 100_000,
            "queue.buffering.max.kbytes": 262_144,
            "compression.type": settings.producer.compression_type,
            # the Java client's; asked for records with a key on a route that maps by key only
            # (`deduplicator.partitioner`)
            "partitioner": "murmur2",
        },
    )
