"""Which raw options of the clients are guarded, each with the reason and its harmless values.

One table for each setting with raw options, `GUARDED`; docs/reference.md shows it. Sources: Kafka's
documentation ("Consumer Configs", "Producer Configs"), librdkafka's CONFIGURATION.md with its
aliases, Spark's "Structured Streaming + Kafka Integration Guide".
"""

from __future__ import annotations

from collections.abc import Mapping

from common.settings import spark_options
from common.settings.option_guard import Guard


def _guard_access(side: str, host_name: str, *names: str) -> dict[str, Guard]:
    access = Guard(
        f"all clients use the same TLS and SASL settings: use {side}.security_protocol,"
        f" {side}.sasl_… and {side}.ssl_…"
    )
    return {
        **dict.fromkeys(
            ("bootstrap.servers", *names[:1]),
            Guard(f"all clients must use the same cluster: use {side}.bootstrap_servers"),
        ),
        **dict.fromkeys(("security.protocol", "sasl.mechanism", *names[1:]), access),
        "ssl.endpoint.identification.algorithm": Guard(
            "without it a client accepts any certificate of a trusted authority as the broker's",
            host_name,
        ),
    }


_JAVA_ACCESS = (
    "bootstrap.servers",
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.oauthbearer.token.endpoint.url",
    "ssl.truststore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.keystore.type",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
)
_C_ACCESS = (
    "metadata.broker.list",
    "sasl.mechanisms",
    "sasl.username",
    "sasl.password",
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.scope",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
)
_SET_BY_SPARK = Guard("Spark sets it itself and refuses another value", always=True)
_SET_BY_STAGE_ONE = Guard("stage one sets it itself: envelopes are bytes", always=True)
_CALLBACK = Guard("reo sets it to a function; a text cannot replace that", always=True)
_INTERCEPTOR = Guard("an interceptor can change or hold back records")
_START_OFFSETS = Guard(
    "a run begins at the frontier, partition by partition: use source.start for where a copy begins"
)
_ONE_TASK = Guard(
    "an envelope begins where the one before it ended: one Spark task has to read all of a"
    " partition, in order"
)
_COMMITTED = Guard("records of aborted transactions would be copied", "read_committed")
_NO_CREATION = Guard(
    "a Metadata request would create a missing topic, with the broker's default partitions",
    "false",
)
_CHECKSUMS = Guard("damaged records would be copied", "true")
_ACKS = Guard("with less, an acknowledged record can be lost", "all|-1")
_IDEMPOTENCE = Guard(
    "without it the producer's own retries write records twice and in another order", "true"
)
_IN_FLIGHT = Guard("with more than 5, idempotence does not keep the order", "[1-5]")
_CONNECTION_LOG = Guard(
    "reo sees a lost connection only in this log, and must then replace the producer: a late EndTxn"
    " could end the next transaction"
)

_SPARK_SOURCE = {
    **_guard_access("source", "https", *_JAVA_ACCESS),
    "isolation.level": _COMMITTED,
    "allow.auto.create.topics": _NO_CREATION,
    "group.id": Guard(
        "Spark's tasks need a group of their own, which must not be the one that holds the frontier"
    ),
    **dict.fromkeys(
        (
            "auto.offset.reset",
            "enable.auto.commit",
            "key.deserializer",
            "value.deserializer",
            "interceptor.classes",
        ),
        _SET_BY_SPARK,
    ),
    "check.crcs": _CHECKSUMS,
    "failondataloss": Guard("a gap at the source would be skipped silently", "true"),
    "includeheaders": Guard("the copy would have no headers", "true"),
    **dict.fromkeys(
        ("assign", "subscribe", "subscribepattern"),
        Guard("the topic and its partitions are set by source.topic and the frontier"),
    ),
    **dict.fromkeys(
        (
            "startingoffsets",
            "startingtimestamp",
            "startingoffsetsbytimestamp",
            "startingoffsetsbytimestampstrategy",
            "endingoffsets",
            "endingtimestamp",
            "endingoffsetsbytimestamp",
        ),
        _START_OFFSETS,
    ),
    **dict.fromkeys(("minpartitions", "maxrecordsperpartition"), _ONE_TASK),
    **dict.fromkeys(
        ("maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay"),
        Guard("it limits a micro-batch, and Real-Time Mode has none"),
    ),
    "groupidprefix": Guard(
        "Spark's tasks need a group of their own, which must not be the one that holds the frontier"
    ),
}
_STAGE_ONE_PRODUCER = {
    **_guard_access("destination", "https", *_JAVA_ACCESS),
    "acks": _ACKS,
    "enable.idempotence": _IDEMPOTENCE,
    "max.in.flight.requests.per.connection": _IN_FLIGHT,
    "retries": Guard(
        "an envelope that is given up leaves a gap, which only a new run fills", "2147483647"
    ),
    "delivery.timeout.ms": Guard(
        "an envelope that is given up leaves a gap, which only a new run fills: use"
        " producer.delivery_timeout_ms"
    ),
    "transactional.id": Guard(
        "stage one begins no transactions, so nothing could be written", always=True
    ),
    "interceptor.classes": _INTERCEPTOR,
    **dict.fromkeys(("key.serializer", "value.serializer"), _SET_BY_STAGE_ONE),
    "topic": Guard("the intermediate topic is set by intermediate.topic"),
    "checkpointlocation": Guard(
        "a run begins at the frontier, never at a checkpoint of an earlier run"
    ),
}
_C_CLIENT = {
    **_guard_access("destination", "https", *_C_ACCESS),
    "allow.auto.create.topics": _NO_CREATION,
    "enable.ssl.certificate.verification": Guard(
        "without it any server is accepted as the broker", "true"
    ),
    "plugin.library.paths": _INTERCEPTOR,
    **dict.fromkeys(
        (
            "error_cb",
            "stats_cb",
            "throttle_cb",
            "log_cb",
            "oauth_cb",
            "logger",
            "on_delivery",
            "dr_cb",
            "dr_msg_cb",
            "on_commit",
            "key.serializer",
            "value.serializer",
            "key.deserializer",
            "value.deserializer",
            "default.topic.config",
        ),
        _CALLBACK,
    ),
}
_STAGE_TWO_CONSUMER = {
    **_C_CLIENT,
    "isolation.level": _COMMITTED,
    "group.id": Guard("the group's committed offsets are the frontier: use application"),
    "group.instance.id": Guard(
        "it distinguishes a restarted worker from a second one: use instance"
    ),
    **dict.fromkeys(
        ("group.protocol", "session.timeout.ms"),
        Guard(
            "other parts of reo depend on it: use deduplicator.group_protocol and "
            "deduplicator.session_timeout_ms"
        ),
    ),
    "partition.assignment.strategy": Guard(
        "stage two needs eager rebalancing: all partitions at once",
        "range|roundrobin|range,roundrobin|roundrobin,range",
    ),
    "group.remote.assignor": Guard(
        "every partition must have one owner; only these two assignors of the broker ensure that",
        "uniform|range",
    ),
    "auto.offset.reset": Guard(
        "with another value stage two stops at a position that is gone, or skips envelopes that"
        " only a new run writes again",
        "earliest|smallest|beginning",
    ),
    **dict.fromkeys(
        ("enable.auto.commit", "auto.commit.enable", "enable.auto.offset.store"),
        Guard(
            "offsets are committed in the transaction with the records, and nowhere else", "false"
        ),
    ),
    "enable.partition.eof": Guard(
        "stage two would treat the end of a partition as a failure", "false"
    ),
    "topic.metadata.refresh.interval.ms": Guard(
        "added partitions would be noticed late or never", "[1-9][0-9]{0,4}"
    ),
    "check.crcs": _CHECKSUMS,
}
_STAGE_TWO_PRODUCER = {
    **_C_CLIENT,
    "transactional.id": Guard(
        "it fences the predecessor and aborts its open transaction: use application and instance"
    ),
    **dict.fromkeys(
        ("transaction.timeout.ms", "message.timeout.ms", "delivery.timeout.ms"),
        Guard("other parts of reo depend on it: use deduplicator.transaction_timeout_ms"),
    ),
    "enable.idempotence": _IDEMPOTENCE,
    **dict.fromkeys(("acks", "request.required.acks"), _ACKS),
    **dict.fromkeys(("max.in.flight", "max.in.flight.requests.per.connection"), _IN_FLIGHT),
    **dict.fromkeys(
        ("retries", "message.send.max.retries"),
        Guard("a record that is given up ends its transaction, again and again", "2147483647"),
    ),
    "queuing.strategy": Guard("the order of the records would be lost", "fifo"),
    "delivery.report.only.error": Guard(
        "the delivered offset is part of the frontier: the check at the next start needs it",
        "false",
    ),
    "log_level": Guard(_CONNECTION_LOG.reason, "7"),
    "debug": Guard(_CONNECTION_LOG.reason, "broker|all"),
    "log.connection.close": Guard(_CONNECTION_LOG.reason, "true"),
    "log.queue": Guard(_CONNECTION_LOG.reason, "false"),
}
GUARDED: Mapping[str, Mapping[str, Guard]] = {
    "source.consumer_options": _SPARK_SOURCE,
    "intermediate.producer_options": _STAGE_ONE_PRODUCER,
    "intermediate.consumer_options": _STAGE_TWO_CONSUMER,
    "destination.producer_options": _STAGE_TWO_PRODUCER,
    spark_options.SETTING: spark_options.GUARDS,
}
