"""Translates the errors of the Kafka clients to `common.errors`, and keeps those that no request
reports. Why no broker answers at all is found out in `cluster_requests`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from confluent_kafka import KafkaError, KafkaException, ThrottleEvent

from common import errors
from common.errors import Fenced, ReoError, StageFailed
from common.metrics import CLIENT_ERRORS
from common.settings.clusters import Cluster
from common.settings.guarded_options import read_rows

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
ERRORS = """
AccessRefused TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED \
TRANSACTIONAL_ID_AUTHORIZATION_FAILED SASL_AUTHENTICATION_FAILED _AUTHENTICATION
    Check the credentials and the permissions of this principal
TopicMissing UNKNOWN_TOPIC_OR_PART _UNKNOWN_TOPIC _UNKNOWN_PARTITION UNKNOWN_TOPIC_ID
    Create the topic, or correct its name in the settings
TopicsUnfit INVALID_CONFIG INVALID_PARTITIONS INVALID_REPLICA_ASSIGNMENT POLICY_VIOLATION
    Create or change the topic as the cluster requires it; if it is the number of replicas, set
    topics.replication_factor, or for an intermediate topic intermediate.replication_factor
TopicsUnfit INVALID_REPLICATION_FACTOR
    To no more than the cluster has brokers, set topics.replication_factor, or for an intermediate
    topic intermediate.replication_factor
TopicsUnfit TOPIC_EXCEPTION
    Name another one (destination.topic, intermediate.topic, or a rule in topics), or delete the
    topic with which it collides
TopicsUnfit OFFSET_METADATA_TOO_LARGE
    It holds the frontier, about 300 bytes: set offset.metadata.max.bytes of the destination's
    brokers to the default, 4096
TopicsUnfit INVALID_COMMIT_OFFSET_SIZE
    A commit has up to 100 partitions, each about 300 bytes and the topic's name: set
    max.message.bytes of __consumer_offsets to the default, 1048588
RecordRefused MSG_SIZE_TOO_LARGE
    Raise max.message.bytes of the topic. A record that the source's producers have compressed can
    fit if it is compressed again: set producer.compression_type
RecordRefused RECORD_LIST_TOO_LARGE
    Raise max.message.bytes of the topic. A record that the source's producers have compressed can
    fit if it is compressed again: set producer.compression_type, or raise segment.bytes of the
    topic
RecordRefused INVALID_TIMESTAMP
    Widen message.timestamp.before.max.ms and message.timestamp.after.max.ms of the topic
RecordRefused INVALID_RECORD
    A compacted topic takes no record without a key: if it is one, set its cleanup.policy to
    delete, or leave such records out with a filter
Fenced _FENCED FENCED_INSTANCE_ID INVALID_PRODUCER_EPOCH PRODUCER_FENCED
SettingsInvalid INVALID_TRANSACTION_TIMEOUT
    Lower deduplicator.transaction_timeout_ms, or raise transaction.max.timeout.ms of the
    destination's brokers
SettingsInvalid INVALID_SESSION_TIMEOUT
    Lower deduplicator.session_timeout_ms, or raise group.max.session.timeout.ms of the
    destination's brokers
HangingTransaction UNSTABLE_OFFSET_COMMIT
    `reo recover` names the command that aborts the transaction, then finds the frontier from the
    data
ClusterUnreachable _ALL_BROKERS_DOWN _TRANSPORT _TIMED_OUT _RESOLVE REQUEST_TIMED_OUT \
NOT_LEADER_FOR_PARTITION LEADER_NOT_AVAILABLE COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR \
COORDINATOR_LOAD_IN_PROGRESS NETWORK_EXCEPTION UNKNOWN_LEADER_EPOCH FENCED_LEADER_EPOCH \
OFFSET_NOT_AVAILABLE REPLICA_NOT_AVAILABLE NOT_ENOUGH_REPLICAS KAFKA_STORAGE_ERROR NOT_CONTROLLER \
BROKER_NOT_AVAILABLE _PARTIAL _NOENT
    Check the address and that the brokers run and can be reached from here
"""
"""Our errors, each with those of the client that become it; and, indented, what to do.

Of the last ones: for a moment, a new topic or a restarted broker has no leaders, and a cluster has
no brokers that are registered. With _NOENT the client says that no partition of a request has a
leader; of a topic that does not exist it says the same, and its metadata tell which it is.
"""


def _read_errors() -> Iterator[tuple[int, tuple[type[ReoError], str]]]:
    for head, to_do in read_rows(ERRORS):
        kind, *names = head.split()
        for name in names:
            yield getattr(KafkaError, name), (getattr(errors, kind), to_do)


BY_CODE = dict(_read_errors())
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
