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
    "|wrong version number|invalid_(client|grant|scope)|unauthorized_client"
)
"""In errors of a handshake that stay as they are. Others can be over in a moment: the connection
broke, or the token endpoint did not answer.
"""
NAMED_BY_BROKER = re.compile(r"(\S+)/(\d+): ")
"""Address and broker id at the beginning of an error; of an address from the settings, librdkafka
writes "bootstrap" in place of the id.
"""
AFTER = re.compile(r" \(after \d+ms in state \w+(, \d+ identical error\(s\) suppressed)?\)")
ERRORS: tuple[tuple[tuple[int, ...], type[ReoError], str], ...] = (
    (
        (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.GROUP_AUTHORIZATION_FAILED,
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            KafkaError.SASL_AUTHENTICATION_FAILED,
            KafkaError._AUTHENTICATION,
        ),
        AccessRefused,
        "Check the credentials and the permissions of this principal",
    ),
    (
        (
            KafkaError.UNKNOWN_TOPIC_OR_PART,
            KafkaError._UNKNOWN_TOPIC,
            KafkaError._UNKNOWN_PARTITION,
            KafkaError.UNKNOWN_TOPIC_ID,
        ),
        TopicMissing,
        "Create the topic, or correct its name in the settings",
    ),
    (
        (
            KafkaError.INVALID_CONFIG,
            KafkaError.INVALID_PARTITIONS,
            KafkaError.INVALID_REPLICA_ASSIGNMENT,
            KafkaError.POLICY_VIOLATION,
        ),
        TopicsUnfit,
        (
            "Create or change the topic as the cluster requires it; if it is the number of "
            "replicas, set topics.replication_factor, or for an intermediate topic "
            "intermediate.replication_factor"
        ),
    ),
    (
        (KafkaError.INVALID_REPLICATION_FACTOR,),
        TopicsUnfit,
        (
            "To no more than the cluster has brokers, set topics.replication_factor, or for an "
            "intermediate topic intermediate.replication_factor"
        ),
    ),
    (
        (KafkaError.TOPIC_EXCEPTION,),
        TopicsUnfit,
        (
            "Name another one (destination.topic, intermediate.topic, or a rule in topics), or "
            "delete the topic with which it collides"
        ),
    ),
    (
        (KafkaError.OFFSET_METADATA_TOO_LARGE,),
        TopicsUnfit,
        (
            "It holds the frontier, about 300 bytes: set offset.metadata.max.bytes of the "
            "destination's brokers to the default, 4096"
        ),
    ),
    (
        (KafkaError.INVALID_COMMIT_OFFSET_SIZE,),
        TopicsUnfit,
        (
            "A commit has up to 100 partitions, each about 300 bytes and the topic's name: set "
            "max.message.bytes of __consumer_offsets to the default, 1048588"
        ),
    ),
    (
        (KafkaError.MSG_SIZE_TOO_LARGE,),
        RecordRefused,
        (
            "Raise max.message.bytes of the topic. A record that the source's producers have "
            "compressed can fit if it is compressed again: set producer.compression_type"
        ),
    ),
    (
        (KafkaError.RECORD_LIST_TOO_LARGE,),
        RecordRefused,
        (
            "Raise max.message.bytes of the topic. A record that the source's producers have "
            "compressed can fit if it is compressed again: set producer.compression_type, or "
            "raise segment.bytes of the topic"
        ),
    ),
    (
        (KafkaError.INVALID_TIMESTAMP,),
        RecordRefused,
        "Widen message.timestamp.before.max.ms and message.timestamp.after.max.ms of the topic",
    ),
    (
        (KafkaError.INVALID_RECORD,),
        RecordRefused,
        (
            "A compacted topic takes no record without a key: if it is one, set its "
            "cleanup.policy to delete, or leave such records out with a filter"
        ),
    ),
    (
        (
            KafkaError._FENCED,
            KafkaError.FENCED_INSTANCE_ID,
            KafkaError.INVALID_PRODUCER_EPOCH,
            KafkaError.PRODUCER_FENCED,
        ),
        Fenced,
        "",
    ),
    (
        (KafkaError.INVALID_TRANSACTION_TIMEOUT,),
        SettingsInvalid,
        (
            "Lower deduplicator.transaction_timeout_ms, or raise transaction.max.timeout.ms of "
            "the destination's brokers"
        ),
    ),
    (
        (KafkaError.INVALID_SESSION_TIMEOUT,),
        SettingsInvalid,
        (
            "Lower deduplicator.session_timeout_ms, or raise group.max.session.timeout.ms of the "
            "destination's brokers"
        ),
    ),
    (
        (KafkaError.UNSTABLE_OFFSET_COMMIT,),
        HangingTransaction,
        (
            "`reo recover` names the command that aborts the transaction, then finds the frontier "
            "from the data"
        ),
    ),
    (
        (
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
        ),
        ClusterUnreachable,
        "Check the address and that the brokers run and can be reached from here",
    ),
)
"""The client's errors by their codes, ours, and what to do.

Of the last ones: for a moment, a new topic or a restarted broker has no leaders, and a cluster has
no brokers that are registered. With _NOENT the client says that no partition of a request has a
leader; of a topic that does not exist it says the same, and its metadata tell which it is.
"""
BY_CODE = {code: (kind, to_do) for codes, kind, to_do in ERRORS for code in codes}
STATIC_MEMBER_FENCED = "Static consumer fenced"
"""In the fatal error of a consumer, which has no code of its own."""


def translate(error: KafkaError, doing: str) -> ReoError:
    """The typed error for a client's error. `doing` says what failed, and where."""
    text = f"{doing}: {error.str()} ({error.name()})"
    kind, to_do = BY_CODE.get(error.code(), (StageFailed, ""))
    return Fenced(text) if STATIC_MEMBER_FENCED in text else kind(text, to_do)


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
    """The client's error, which confluent-kafka 2.16 can hide behind a SystemError."""
    failed = (
        raised if isinstance(raised, KafkaException) else raised.__cause__ or raised.__context__
    )
    return failed if isinstance(failed, KafkaException) else None
