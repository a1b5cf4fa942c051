"""The confluent-kafka clients, each with its safety options and why; and the one place where their errors are translated.

librdkafka's defaults are made for throughput and convenience: they start reading at the end, read aborted records, commit by
themselves and give up after a while. Nothing here is left to a default that matters.

No client is made elsewhere, and what they are made of can be replaced for the whole interpreter (`use`): so a simulator can give the service's own
processes a Kafka of its own.
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

from common import client_options, machine
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
from common.security import Security
from common.settings import Settings
from common.upstreams import Cluster

log = logging.getLogger(__name__)
Result = TypeVar("Result")
REQUEST_TIMEOUT_S = 10.0
BATCH_OVERHEAD_BYTES = 512
"""Framing around the records of a batch (61 bytes in message format v2), generously."""

PLAIN_TEXT = re.compile("wrong version number|PLAINTEXT broker listener")
AFTER = re.compile(r" \(after \d+ms in state \w+(, \d+ identical error\(s\) suppressed)?\)")
REFUSED = frozenset({
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._AUTHENTICATION,
})
SILENT = frozenset({KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._RESOLVE, KafkaError.REQUEST_TIMED_OUT,
                    KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR,
                    KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NETWORK_EXCEPTION,
                    KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.FENCED_LEADER_EPOCH, KafkaError.OFFSET_NOT_AVAILABLE, KafkaError.REPLICA_NOT_AVAILABLE,
                    KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.KAFKA_STORAGE_ERROR, KafkaError.NOT_CONTROLLER})
"""No answer, or none yet: a new topic or a restarted broker has no leaders for a moment."""
TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_RECORD})
REPLACED = frozenset({KafkaError._FENCED, KafkaError.FENCED_INSTANCE_ID, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED})
MISSING = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_ID,
                     KafkaError._NOENT})


def translate(error: KafkaError, doing: str) -> ReoError:
    """The typed error for a client's error; `doing` says what was tried, and on which cluster or topic."""
    code, text = error.code(), f"{doing}: {error.str()} ({error.name()})"
    if code in REFUSED:
        return AccessRefused(f"{text}. Check the credentials and the permissions of this principal")
    if code in MISSING:
        return TopicMissing(f"{text}. Create the topic, or correct its name in the settings")
    if code in TOO_LARGE:
        return RecordRefused(f"{text}. Raise max.message.bytes, or widen message.timestamp.before.max.ms and .after.max.ms, of the topic")
    if code in REPLACED:
        return Fenced(f"{text}. A newer instance has taken over; if none should run, look for one with the same application and instance name")
    if code == KafkaError.UNSTABLE_OFFSET_COMMIT:
        return HangingTransaction(f"{text}. `reo recover` names the command that aborts the transaction, then finds the frontier from the data")
    if code in SILENT:
        return ClusterUnreachable(f"{text}. Check the address and that the brokers run and can be reached from here")
    return StageFailed(text)


def once_reachable(cluster: Cluster, client: AdminClient, timeout_s: float, ask: Callable[[], Result]) -> Result:
    """Ask until a broker of the cluster answers; see `patiently`. AccessRefused, with the reason, when connections were broken off while they were made."""
    cluster.refused = cluster.unconnected = ""
    try:
        answer = patiently(f"the {cluster.name} cluster at {cluster.bootstrap_servers}", timeout_s, ask)
    except ClusterUnreachable as silent:
        client.poll(0)  # calls `_noted`
        raise _named(cluster, silent) from None
    _answered_or_asked.add(cluster.bootstrap_servers)
    return answer


def _named(cluster: Cluster, silent: ClusterUnreachable) -> ReoError:
    """Why a cluster is silent, as far as it can be known, and what to do about it."""
    which, said = f"the {cluster.name} cluster at {cluster.bootstrap_servers}", cluster.unconnected
    if cluster.refused:
        why = cluster.security.why_not_verified(cluster.bootstrap_servers) if "certificate verify failed" in cluster.refused else ""
        if PLAIN_TEXT.search(cluster.refused):
            why = f"its listener does not speak TLS ({cluster.refused}): use the address of a TLS listener, or {cluster.name}.security_protocol=PLAINTEXT"
        return AccessRefused(f"{which} cannot be entered: {why or cluster.refused}. Check the settings {cluster.name}.security_protocol, {cluster.name}.sasl_… "
                             f"and {cluster.name}.ssl_…")
    if "Failed to resolve" in said:
        return ClusterUnreachable(f"{which} cannot be reached: {said}. Correct the host in {cluster.name}.bootstrap_servers, or make its name known here (DNS)")
    if "Connection refused" in said:
        return ClusterUnreachable(f"{which} cannot be reached: {said}. Nothing listens there: start the broker, or correct the port in "
                                  f"{cluster.name}.bootstrap_servers")
    if said:
        return ClusterUnreachable(f"{which} cannot be reached: {said}. Check the address and that the brokers run and can be reached from here")
    if not cluster.security.with_tls and _waits_for_tls(cluster.bootstrap_servers):
        return ClusterUnreachable(f"{which} does not answer: its listener speaks TLS, and {cluster.name}.security_protocol is "
                                  f"{cluster.security.security_protocol}. Set it to SSL or SASL_SSL, or use the address of a plain-text listener")
    return silent


def _waits_for_tls(bootstrap_servers: str) -> bool:
    """Whether a cluster that says nothing waits for a handshake: asked once in a process, since one that stands still is waited for, and never of one that has
    answered before.
    """
    if bootstrap_servers in _answered_or_asked:
        return False
    _answered_or_asked.add(bootstrap_servers)
    return _in_use.speaks_tls(bootstrap_servers)


def patiently(doing: str, timeout_s: float, ask: Callable[[], Result], later: tuple[type[ReoError], ...] = (ClusterUnreachable,)) -> Result:
    """Ask until there is an answer; after `timeout_s` the errors of `later` are raised too. Others are translated and raised at once."""
    deadline = machine.monotonic() + timeout_s
    while True:
        try:
            return ask()
        except KafkaException as failed:
            error = translate(failed.args[0], doing)
            if not isinstance(error, later) or machine.monotonic() > deadline:
                raise error from None
            machine.sleep(0.05)


class Clients(NamedTuple):
    """What clients are made of: each takes librdkafka's options and gives a client."""

    consumer: Callable[[dict[str, Any]], Consumer]
    producer: Callable[[dict[str, Any]], Producer]
    admin: Callable[[dict[str, Any]], AdminClient]
    speaks_tls: Callable[[str], bool] = Security.speaks_tls
    """Asked of addresses that do not answer a client."""


_in_use = Clients(Consumer, Producer, AdminClient)
_answered_or_asked: set[str] = set()
"""Addresses that have answered a client, or were asked whether they speak TLS."""


def use(clients: Clients) -> Clients:
    """Make clients of these from now on, in the whole interpreter; returns what they were made of before."""
    global _in_use
    before, _in_use = _in_use, clients
    return before


class Lost:
    """A client's log that counts what it lost: connections, and requests that had no answer in time.

    librdkafka sends such requests again by itself and says so nowhere but in its log, at INFO. The line is there before the request is sent again, so
    it is there to be counted when the call that was repaired has returned.
    """

    def __init__(self, name: str) -> None:
        self.count = 0
        self._log = logging.getLogger(name)

    def by(self, client: Producer) -> int:
        """How many up to now; what the client's log still has is read first."""
        with suppress(KafkaException):  # a fatal error, which the call that follows meets too, and translates
            client.poll(0)
        return self.count

    def log(self, level: int, form: str, facility: str, *more: object) -> None:
        """Called by confluent-kafka."""
        if facility in ("FAIL", "REQTMOUT"):
            self.count += 1
        if level >= logging.ERROR:  # as in all clients: lost connections are normal
            self._log.log(level, form, facility, *more)


def _noted(cluster: Cluster, error: KafkaError) -> None:
    """Called by confluent-kafka for what no request is told: a request only times out when its connection is refused."""
    CLIENT_ERRORS.labels(cluster.name, error.name()).inc()
    if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL) or ":SSL routines:" in error.str() or PLAIN_TEXT.search(error.str()):
        cluster.refused = error.str()
    elif error.code() in (KafkaError._RESOLVE, KafkaError._TRANSPORT):
        cluster.unconnected = AFTER.sub("", error.str())


def _base(cluster: Cluster, settings: Settings, role: str) -> dict[str, Any]:
    return {
        **cluster.security.librdkafka(),
        "error_cb": partial(_noted, cluster),
        "bootstrap.servers": cluster.bootstrap_servers,
        "client.id": f"{settings.client_id}-{role}",  # a name to find in the brokers' logs and quotas
        "log_level": 3,  # errors; disconnects are normal and are seen in the metrics
        "logger": logging.getLogger(f"librdkafka.{role}"),
        "reconnect.backoff.max.ms": 1000,  # the default, 10 s, is how long a restarted broker would wait for us
        "socket.keepalive.enable": True,
        "topic.metadata.refresh.interval.ms": 10_000,  # how fast an added partition is seen
    }


def admin(cluster: Cluster, settings: Settings, **more: Any) -> AdminClient:
    """For descriptions, offsets, creating topics and purging."""
    return _in_use.admin(_base(cluster, settings, "admin") | {"log_level": 0} | more)  # what goes wrong is an answer, or `Cluster.refused`; no log repeats it


def reader(cluster: Cluster, settings: Settings, **more: Any) -> Consumer:
    """A consumer without a group: it is assigned by hand, sees committed records only and stops at an unknown offset."""
    return _in_use.consumer(_base(cluster, settings, "reader") | {
        "group.id": settings.application,  # never joined: only `committed` asks for it
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,  # the only way to know that nothing visible follows: offsets also count markers and aborted records
        "fetch.message.max.bytes": 1_048_576,  # one record is looked for mostly: a slow line carries what lies behind it as well
        "fetch.wait.max.ms": 20,  # what is asked for is there already; waiting is for the end of a partition only
        **more,
    })


def idempotent_producer(cluster: Cluster, settings: Settings, role: str) -> Producer:
    """For a record now and then, outside transactions."""
    return _in_use.producer(_base(cluster, settings, role) | {"enable.idempotence": True, "acks": "all"})


def _with_options(kind: Callable[[dict[str, Any]], Result], settings: Settings, name: str, ours: dict[str, Any]) -> Result:
    """A client with the raw options of one of the settings' tables over our own; SettingsInvalid when the client does not take them."""
    given = settings.options(name)
    try:
        return kind(ours | given)
    except (KafkaException, TypeError, ValueError) as failed:
        if not given:
            raise
        said = " ".join((failed.args[0].str() if isinstance(failed, KafkaException) else str(failed)).split())
        secret = any(client_options.SECRET.search(option) and value in said for option, value in given.items())
        raise SettingsInvalid(f"{name} ({', '.join(sorted(given))}) is not taken by the client{'' if secret else f': {said}'}") from None


def stage_two_consumer(settings: Settings, worker: int) -> Consumer:
    """The member of the group on the intermediate topic."""
    classic = settings.text("deduplicator.group_protocol") == "classic"
    session_ms = settings.number("deduplicator.session_timeout_ms")
    classic_options = {
        # A static member (KIP-345): a restarted worker takes its predecessor's place at once. With group.protocol=consumer the broker
        # refuses the new one until the old one's session has ended (UNRELEASED_INSTANCE_ID), so there it is a dynamic member.
        "group.instance.id": f"{settings.application}-{settings.instance}-{worker}",
        "partition.assignment.strategy": "roundrobin",  # "range" gives the first partition of every topic to the same worker
        "session.timeout.ms": session_ms,
        "heartbeat.interval.ms": session_ms // 4,
    }
    return _with_options(_in_use.consumer, settings, "intermediate.consumer_options", _base(settings.destination, settings, f"deduplicator-{worker}") | {
        "group.id": settings.application,
        "group.protocol": "classic" if classic else "consumer",
        **(classic_options if classic else {}),
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",  # a position that is gone is looked into (`deduplicator.intermediate`), never skipped
        "enable.auto.commit": False,  # offsets belong to the transaction
        "enable.auto.offset.store": False,
        "fetch.wait.max.ms": 100,
        "fetch.message.max.bytes": 1_048_576,
        "queued.min.messages": 50_000,  # of each partition: the fetcher runs ahead while a transaction commits
        "fetch.queue.backoff.ms": 10,  # a full queue is looked at again so soon; with the default, 1 s, stage two waited a third of its time (measured)
        "queued.max.messages.kbytes": 131_072,  # the bound on memory, per worker
        "max.poll.interval.ms": 600_000,
        "check.crcs": True,
    })


def transactional_producer(settings: Settings, worker: int, letter: str, batch_bytes_max: int, lost: Lost) -> Producer:
    """One of the two producers that a worker uses in turn (`deduplicator.transaction`).

    `batch_bytes_max` is the destination topic's max.message.bytes, which bounds a batch, not a record; librdkafka does not
    split a batch that the broker refuses.
    """
    timeout_ms = settings.number("deduplicator.transaction_timeout_ms")
    base = _base(settings.destination, settings, f"deduplicator-{worker}-{letter}")
    return _with_options(_in_use.producer, settings, "destination.producer_options", base | {
        "logger": lost,
        "log_level": 6,  # for `Lost`
        "transactional.id": f"{settings.application}-{settings.instance}-{worker}-{letter}",
        "transaction.timeout.ms": timeout_ms,
        "enable.idempotence": True,
        "acks": "all",
        "message.timeout.ms": timeout_ms,  # not longer than the transaction; what is not delivered by then is aborted and done again
        "linger.ms": 5,  # the end of a transaction waits for none of it: flush() sends at once
        "batch.num.messages": 100_000,
        "batch.size": max(1, min(1_000_000, batch_bytes_max - BATCH_OVERHEAD_BYTES)),
        "message.max.bytes": 100_000_000,  # the broker's limit decides (RecordRefused), not the client's
        "queue.buffering.max.messages": 100_000,
        "queue.buffering.max.kbytes": 262_144,
        "compression.type": settings.text("producer.compression_type"),
        "partitioner": "murmur2",  # the Java client's; asked for records with a key on a route that maps by key only (`deduplicator.partitioner`)
    })
