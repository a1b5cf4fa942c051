"""Translates the errors of the Kafka clients to `common.errors`, and keeps those that no request
reports. Why no broker answers at all is found out in `cluster_requests`.
"""

from __future__ import annotations

import re

from confluent_kafka import KafkaError, KafkaException, ThrottleEvent

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
    TopicsUnfit,
)
from common.metrics import CLIENT_ERRORS
from common.settings.clusters import Cluster

PLAIN_TEXT = re.compile("wrong version number|PLAINTEXT broker listener")
FINAL = re.compile(
    "SASL authentication error: (?!.*Local: )|Broker: Unsupported SASL|certificate"
    "|wrong version number|invalid_client"
)
"""In errors of a handshake that stay as they are. Others can be over in a moment: the connection
broke, or the token endpoint did not answer.
"""
NAMED_BY_BROKER = re.compile(r"(\S+)/(\d+): ")
"""Address and broker id at the beginning of an error; of an address from the settings, librdkafka
writes "bootstrap" in place of the id.
"""
AFTER = re.compile(r" \(after \d+ms in state \w+(, \d+ identical error\(s\) suppressed)?\)")
ACCESS_REFUSED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
    }
)
UNREACHABLE = frozenset(
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
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError._PARTIAL,
        KafkaError._NOENT,
    }
)
"""No answer yet: for a moment, a new topic or a restarted broker has no leaders, and a cluster has
no brokers that are registered. With _NOENT the client says that no partition of a request has a
leader; of a topic that does not exist it says the same, and its metadata tell which it is.
"""
_TOO_LARGE = (
    "Raise max.message.bytes of the topic. A record that the source's producers have compressed can"
    " fit if it is compressed again: set producer.compression_type"
)
RECORD_REJECTED = {
    KafkaError.MSG_SIZE_TOO_LARGE: _TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE: f"{_TOO_LARGE}, or raise segment.bytes of the topic",
    KafkaError.INVALID_TIMESTAMP: (
        "Widen message.timestamp.before.max.ms and message.timestamp.after.max.ms of the topic"
    ),
    KafkaError.INVALID_RECORD: (
        "A compacted topic takes no record without a key: if it is one, set its cleanup.policy to"
        " delete, or leave such records out with a filter"
    ),
}
"""Brokers do not take a record, or a batch with it: what to do about it."""
FENCED = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
    }
)
STATIC_MEMBER_FENCED = "Static consumer fenced"
"""In the fatal error of a consumer, which has no code of its own."""
REFUSED_TIMEOUTS = {
    KafkaError.INVALID_TRANSACTION_TIMEOUT: (
        "deduplicator.transaction_timeout_ms, or raise transaction.max.timeout.ms of the"
        " destination's brokers"
    ),
    KafkaError.INVALID_SESSION_TIMEOUT: (
        "deduplicator.session_timeout_ms, or raise group.max.session.timeout.ms of the"
        " destination's brokers"
    ),
}
_REPLICAS = (
    "set topics.replication_factor, or for an intermediate topic intermediate.replication_factor"
)
_AS_REQUIRED = (
    "Create or change the topic as the cluster requires it; if it is the number of replicas,"
    f" {_REPLICAS}"
)
TOPIC_REFUSED = {
    KafkaError.INVALID_CONFIG: _AS_REQUIRED,
    KafkaError.INVALID_PARTITIONS: _AS_REQUIRED,
    KafkaError.INVALID_REPLICA_ASSIGNMENT: _AS_REQUIRED,
    KafkaError.POLICY_VIOLATION: _AS_REQUIRED,
    KafkaError.INVALID_REPLICATION_FACTOR: f"To no more than the cluster has brokers, {_REPLICAS}",
    KafkaError.TOPIC_EXCEPTION: (
        "Name another one (destination.topic, intermediate.topic, or a rule in topics), or delete"
        " the topic with which it collides"
    ),
}
"""Brokers do not create or change a topic so: what to do about it."""
TOPIC_MISSING = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_ID,
    }
)


def translate(error: KafkaError, doing: str) -> ReoError:
    """The typed error for a client's error. `doing` says what failed, and on which cluster or
    topic.
    """
    code, text = error.code(), f"{doing}: {error.str()} ({error.name()})"
    if code in ACCESS_REFUSED:
        return AccessRefused(text, "Check the credentials and the permissions of this principal")
    if code in TOPIC_MISSING:
        return TopicMissing(text, "Create the topic, or correct its name in the settings")
    if code in TOPIC_REFUSED:
        return TopicsUnfit(text, TOPIC_REFUSED[code])
    if code in RECORD_REJECTED:
        return RecordRefused(text, RECORD_REJECTED[code])
    if code in FENCED or STATIC_MEMBER_FENCED in text:
        return Fenced(text)
    if code == KafkaError.OFFSET_METADATA_TOO_LARGE:
        return TopicsUnfit(
            f"{text}. It holds the frontier, about 300 bytes: set offset.metadata.max.bytes of the"
            " destination's brokers to the default, 4096"
        )
    if code in REFUSED_TIMEOUTS:
        return SettingsInvalid(f"{text}: lower {REFUSED_TIMEOUTS[code]}")
    if code == KafkaError.UNSTABLE_OFFSET_COMMIT:
        return HangingTransaction(
            f"{text}. `reo recover` names the command that aborts the transaction, then finds the"
            " frontier from the data"
        )
    if code in UNREACHABLE:
        return ClusterUnreachable(
            text, "Check the address and that the brokers run and can be reached from here"
        )
    return StageFailed(text)


def note_error(cluster: Cluster, error: KafkaError) -> None:
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
        cluster.is_refused = bool(FINAL.search(error.str()))
    elif error.code() in (KafkaError._RESOLVE, KafkaError._TRANSPORT):
        text = AFTER.sub("", error.str())
        # of an address from the settings and one that a broker has named, the latter is the reason
        if NAMED_BY_BROKER.search(text) or not NAMED_BY_BROKER.search(cluster.connection_error):
            cluster.connection_error = text


def note_throttling(cluster: Cluster, event: ThrottleEvent) -> None:
    """Called by confluent-kafka when an answer says that its client is over a quota."""
    cluster.throttled_s = max(cluster.throttled_s, event.throttle_time)


def find_client_failure(raised: KafkaException | SystemError) -> KafkaException | None:
    """The client's error in what a call has raised: confluent-kafka 2.16 can hide it behind a
    SystemError.
    """
    failed = (
        raised if isinstance(raised, KafkaException) else raised.__cause__ or raised.__context__
    )
    return failed if isinstance(failed, KafkaException) else None
