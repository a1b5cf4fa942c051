"""Translates the errors of the Kafka clients to `common.errors`, and keeps those that no request
reports. Why no broker answers at all is found out in `cluster_requests`.
"""

from __future__ import annotations

import re

from confluent_kafka import KafkaError, KafkaException

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
RECORD_REJECTED = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_RECORD,
    }
)
FENCED = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
    }
)
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
    if code in RECORD_REJECTED:
        return RecordRefused(
            f"{text}. Raise max.message.bytes, or widen message.timestamp.before.max.ms and"
            " .after.max.ms, of the topic"
        )
    if code in FENCED:
        return Fenced(
            f"{text}. A newer instance has taken over; if none should run, look for one with the"
            " same application and instance name"
        )
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
    elif error.code() in (KafkaError._RESOLVE, KafkaError._TRANSPORT):
        cluster.connection_error = AFTER.sub("", error.str())


def find_client_failure(raised: KafkaException | SystemError) -> KafkaException | None:
    """The client's error in what a call has raised: confluent-kafka 2.16 can hide it behind a
    SystemError.
    """
    failed = (
        raised if isinstance(raised, KafkaException) else raised.__cause__ or raised.__context__
    )
    return failed if isinstance(failed, KafkaException) else None
