"""The confluent-kafka clients, each with its safety options and why; and the one place where their
errors are translated.

librdkafka's defaults favour throughput and convenience: a consumer starts at the end, commits
automatically, and clients give up after a while. Every option that matters for safety is set here.

No client is created elsewhere. `use_clients` replaces the client classes for the whole interpreter,
so a simulator can run the service's own processes on a Kafka of its own.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from common import runtime
from common.errors import (
    AccessRefused,
    ClusterUnreachable,
    Fenced,
    HangingTransaction,
    RecordRefused,
    ReoError,
    SettingsInvalid,
    StageFailed,
    TopicMissing,
)
from common.metrics import CLIENT_ERRORS
from common.settings import Settings, client_options
from common.settings.security import Security
from common.settings.source_clusters import Cluster

log = logging.getLogger(__name__)
Result = TypeVar("Result")
REQUEST_TIMEOUT_S = 10.0
BATCH_OVERHEAD_BYTES = 512
"""Framing around the records of a batch (61 bytes in message format v2), generously."""

PLAIN_TEXT = re.compile("wrong version number|PLAINTEXT broker listener")
AFTER = re.compile(r" \(after \d+ms in state \w+(, \d+ identical error\(s\) suppressed)?\)")
REFUSED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
    }
)
SILENT = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.NOT_CONTROLLER,
    }
)
"""No answer yet: for a moment, a new topic or a restarted broker has no leaders."""
TOO_LARGE = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_RECORD,
    }
)
REPLACED = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
    }
)
MISSING = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError._NOENT,
    }
)


def translate(error: KafkaError, doing: str) -> ReoError:
    """The typed error for a client's error. `doing` says what failed, and on which cluster or
    topic.
    """
    code, text = error.code(), f"{doing}: {error.str()} ({error.name()})"
    if code in REFUSED:
        return AccessRefused(text, "Check the credentials and the permissions of this principal")
    if code in MISSING:
        return TopicMissing(text, "Create the topic, or correct its name in the settings")
    if code in TOO_LARGE:
        return RecordRefused(
            f"{text}. Raise max.message.bytes, or widen message.timestamp.before.max.ms and"
            " .after.max.ms, of the topic"
        )
    if code in REPLACED:
        return Fenced(
            f"{text}. A newer instance has taken over; if none should run, look for one with the"
            " same application and instance name"
        )
    if code == KafkaError.UNSTABLE_OFFSET_COMMIT:
        return HangingTransaction(
            f"{text}. `reo recover` names the command that aborts the transaction, then finds the"
            " frontier from the data"
        )
    if code in SILENT:
        return ClusterUnreachable(
            text, "Check the address and that the brokers run and can be reached from here"
        )
    return StageFailed(text)


def ask_cluster(
    cluster: Cluster, client: AdminClient, timeout_s: float, ask: Callable[[], Result]
) -> Result:
    """Ask until a broker of the cluster answers; see `ask_with_retries`. AccessRefused, with the
    reason, when the TLS or SASL handshake failed.
    """
    cluster.handshake_error = cluster.connection_error = ""
    try:
        answer = ask_with_retries(
            f"the {cluster.name} cluster at {cluster.bootstrap_servers}", timeout_s, ask
        )
    except ClusterUnreachable as silent:
        client.poll(0)  # calls `_on_error`
        raise _explain_silence(cluster, silent) from None
    _known_addresses.add(cluster.bootstrap_servers)
    return answer


def _explain_silence(cluster: Cluster, silent: ClusterUnreachable) -> ReoError:
    """Why a cluster does not answer, as far as it is known, and what to do about it."""
    which, connection_error, handshake_error = (
        f"the {cluster.name} cluster at {cluster.bootstrap_servers}",
        cluster.connection_error,
        cluster.handshake_error,
    )
    if handshake_error:
        why = (
            cluster.security.why_not_verified(cluster.bootstrap_servers)
            if "certificate verify failed" in handshake_error
            else ""
        )
        if PLAIN_TEXT.search(handshake_error):
            why = (
                f"its listener does not speak TLS ({handshake_error}): use the address of a TLS"
                f" listener, or {cluster.name}.security_protocol=PLAINTEXT"
            )
        return AccessRefused(
            f"{which}: the TLS or SASL handshake failed: {why or handshake_error}",
            f"Check the settings {cluster.name}.security_protocol, {cluster.name}.sasl_… and"
            f" {cluster.name}.ssl_…",
        )
    if "Failed to resolve" in connection_error:
        return ClusterUnreachable(
            f"{which} cannot be reached: {connection_error}",
            f"Correct the host in {cluster.name}.bootstrap_servers, or make its name known here"
            " (DNS)",
        )
    if "Connection refused" in connection_error:
        return ClusterUnreachable(
            f"{which} cannot be reached: {connection_error}",
            "Nothing listens there: start the broker, or correct the port in"
            f" {cluster.name}.bootstrap_servers",
        )
    if connection_error:
        return ClusterUnreachable(
            f"{which} cannot be reached: {connection_error}",
            "Check the address and that the brokers run and can be reached from here",
        )
    if not cluster.security.with_tls and _waits_for_tls(cluster.bootstrap_servers):
        return ClusterUnreachable(
            f"{which} does not answer: its listener speaks TLS, and"
            f" {cluster.name}.security_protocol is {cluster.security.security_protocol}",
            "Set it to SSL or SASL_SSL, or use the address of a plain-text listener",
        )
    return silent


def _waits_for_tls(bootstrap_servers: str) -> bool:
    """Whether a silent cluster waits for a TLS handshake: tried once per process, because a frozen
    broker makes it wait, and never after an answer.
    """
    if bootstrap_servers in _known_addresses:
        return False
    _known_addresses.add(bootstrap_servers)
    return _factories.speaks_tls(bootstrap_servers)


def ask_with_retries(
    doing: str,
    timeout_s: float,
    ask: Callable[[], Result],
    later: tuple[type[ReoError], ...] = (ClusterUnreachable,),
) -> Result:
    """Ask until there is an answer. The errors in `later` are raised only after `timeout_s`; all
    others are translated and raised at once.
    """
    deadline = runtime.monotonic() + timeout_s
    while True:
        try:
            return ask()
        except KafkaException as failed:
            error = translate(failed.args[0], doing)
            if not isinstance(error, later) or runtime.monotonic() > deadline:
                raise error from None
            runtime.sleep(0.05)


class ClientFactories(NamedTuple):
    """What creates the clients: each factory takes librdkafka's options and returns a client."""

    consumer: Callable[[dict[str, Any]], Consumer]
    producer: Callable[[dict[str, Any]], Producer]
    admin: Callable[[dict[str, Any]], AdminClient]
    speaks_tls: Callable[[str], bool] = Security.speaks_tls
    """Tried for addresses that do not answer a client."""


_factories = ClientFactories(Consumer, Producer, AdminClient)
_known_addresses: set[str] = set()
"""Addresses that have answered a client, or for which `speaks_tls` was tried."""


def use_clients(clients: ClientFactories) -> ClientFactories:
    """Create all clients of this interpreter with these factories from now on; returns the previous
    factories.
    """
    global _factories
    before, _factories = _factories, clients
    return before


class LossCounter:
    """A client's logger that counts what the client lost: connections, and requests without an
    answer in time.

    librdkafka resends such requests by itself and reports that only in its log, at INFO. It logs
    the line before it resends the request, so the loss is counted before the call returns.
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


def _on_error(cluster: Cluster, error: KafkaError) -> None:
    """Called by confluent-kafka for errors that no request reports: when a connection is refused,
    the request itself only times out.
    """
    CLIENT_ERRORS.labels(cluster.name, error.name()).inc()
    if (
        error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL)
        or ":SSL routines:" in error.str()
        or PLAIN_TEXT.search(error.str())
    ):
        cluster.handshake_error = error.str()
    elif error.code() in (KafkaError._RESOLVE, KafkaError._TRANSPORT):
        cluster.connection_error = AFTER.sub("", error.str())


def _base_options(cluster: Cluster, settings: Settings, role: str) -> dict[str, Any]:
    return {
        **cluster.security.librdkafka(),
        "error_cb": partial(_on_error, cluster),
        "bootstrap.servers": cluster.bootstrap_servers,
        "client.id": f"{settings.client_id}-{role}",  # for the brokers' logs and quotas
        "log_level": 3,  # errors only: disconnects are normal, and the metrics count them
        "logger": logging.getLogger(f"librdkafka.{role}"),
        # with the default, 10 s, a restarted broker would wait that long for us
        "reconnect.backoff.max.ms": 1000,
        "socket.keepalive.enable": True,
        "topic.metadata.refresh.interval.ms": 10_000,  # how soon an added partition is noticed
    }


def admin(cluster: Cluster, settings: Settings, **more: Any) -> AdminClient:
    """For descriptions, offsets, creating topics and purging."""
    # errors are in the answers, or in `Cluster.handshake_error`
    return _factories.admin(_base_options(cluster, settings, "admin") | {"log_level": 0} | more)


def reader(cluster: Cluster, settings: Settings, **more: Any) -> Consumer:
    """A consumer outside the group: assigned manually, read_committed, and it stops at an offset
    that does not exist.
    """
    return _factories.consumer(
        _base_options(cluster, settings, "reader")
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


def idempotent_producer(cluster: Cluster, settings: Settings, role: str) -> Producer:
    """A producer for occasional records outside transactions."""
    return _factories.producer(
        _base_options(cluster, settings, role) | {"enable.idempotence": True, "acks": "all"}
    )


def _create_with_options(
    kind: Callable[[dict[str, Any]], Result],
    name: str,
    raw_options: dict[str, str],
    ours: dict[str, Any],
) -> Result:
    """A client with our options and, over them, the raw options of one setting; SettingsInvalid
    when the client refuses them.
    """
    try:
        return kind(ours | raw_options)
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


def stage_two_consumer(settings: Settings, worker: int) -> Consumer:
    """The consumer of stage two: a member of the group, on the intermediate topics."""
    classic = settings.deduplicator.group_protocol == "classic"
    session_ms = settings.deduplicator.session_timeout_ms
    classic_options = {
        # A static member (KIP-345): a restarted worker takes its predecessor's place at once. With
        # group.protocol=consumer the broker refuses the new one until the old one's session has
        # ended (UNRELEASED_INSTANCE_ID), so there it is a dynamic member.
        "group.instance.id": f"{settings.application}-{settings.instance}-{worker}",
        # "range" gives the first partition of every topic to the same worker
        "partition.assignment.strategy": "roundrobin",
        "session.timeout.ms": session_ms,
        "heartbeat.interval.ms": session_ms // 4,
    }
    base = _base_options(settings.destination_cluster, settings, f"deduplicator-{worker}")
    return _create_with_options(
        _factories.consumer,
        "intermediate.consumer_options",
        settings.intermediate.consumer_options,
        base
        | {
            "group.id": settings.application,
            "group.protocol": "classic" if classic else "consumer",
            **(classic_options if classic else {}),
            "isolation.level": "read_committed",
            # an offset that is gone is examined (`deduplicator.intermediate`), never skipped
            "auto.offset.reset": "error",
            "enable.auto.commit": False,  # offsets are committed in the transaction
            "enable.auto.offset.store": False,
            "fetch.wait.max.ms": 100,
            "fetch.message.max.bytes": 1_048_576,
            # per partition: the fetcher runs ahead while a transaction commits
            "queued.min.messages": 50_000,
            # when a full queue is checked again; with the default, 1 s, stage two waited a third of
            # its time (measured)
            "fetch.queue.backoff.ms": 10,
            "queued.max.messages.kbytes": 131_072,  # bounds the memory, per worker
            "max.poll.interval.ms": 600_000,
            "check.crcs": True,
        },
    )


def transactional_producer(
    settings: Settings, worker: int, letter: str, batch_bytes_max: int, loss_counter: LossCounter
) -> Producer:
    """One of the two producers that a worker uses in turn (`deduplicator.transaction`).

    `batch_bytes_max` is the destination topic's max.message.bytes, which bounds a batch, not a
    record; librdkafka does not split a batch that the broker refuses.
    """
    timeout_ms = settings.deduplicator.transaction_timeout_ms
    base = _base_options(settings.destination_cluster, settings, f"deduplicator-{worker}-{letter}")
    return _create_with_options(
        _factories.producer,
        "destination.producer_options",
        settings.destination.producer_options,
        base
        | {
            "logger": loss_counter,
            "log_level": 6,  # `LossCounter` needs INFO
            "transactional.id": f"{settings.application}-{settings.instance}-{worker}-{letter}",
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
