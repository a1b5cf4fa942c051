"""Which raw options of the clients, and of Spark, are guarded, each with the reason and its
harmless values: one table for each setting with raw options, `GUARDED`; docs/reference.md shows it.

A row has options; behind `=` the pattern of the values that are harmless; `!` where all others are
refused even with `allow_unsafe_options`; and, indented, the reason, with settings in braces.

Sources: Kafka's documentation ("Consumer Configs", "Producer Configs"), librdkafka's
CONFIGURATION.md with its aliases, Spark's "Structured Streaming + Kafka Integration Guide",
"Configuration", "Running Spark on Kubernetes" and "Spark Standalone Mode".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

SPARK_OPTIONS_TABLE = "replicator.spark_options"


@dataclass(frozen=True, slots=True)
class Guard:
    """Why an option is guarded, with settings in braces, and which values are allowed; with
    `always`, all others are refused even with `allow_unsafe_options`.
    """

    text: str
    harmless: str
    always: bool

    @property
    def reason(self) -> str:
        """The text with the settings' dotted names."""
        return self.text.replace("{", "").replace("}", "")

    def is_allowed(self, value: str) -> bool:
        """Whether this value is harmless."""
        return (
            bool(self.harmless) and re.fullmatch(self.harmless, value.strip().lower()) is not None
        )


def read_rows(table: str) -> Iterator[tuple[str, str]]:
    """Of each row the first line, and the indented ones as one."""
    for row in re.split(r"\n(?! )", table.strip()):
        head, *text = map(str.strip, row.split("\n"))
        yield head, " ".join(text)


def _read_table(table: str) -> dict[str, Guard]:
    guards: dict[str, Guard] = {}
    for head, reason in read_rows(table):
        options, _, harmless = head.removesuffix("!").strip().partition(" = ")
        guard = Guard(reason, harmless, head.endswith("!"))
        guards |= dict.fromkeys(options.split(), guard)
    return guards


_ACCESS = """
{servers}
    all clients take it from {{{side}.bootstrap_servers}}
security.protocol sasl.mechanism {access}
    all clients take it from {{{side}.security_protocol}}, {side}.sasl_… and {side}.ssl_…
ssl.endpoint.identification.algorithm = https
    without it any certificate of a trusted authority is accepted as the broker's
"""
_JAVA_ACCESS = (
    "sasl.jaas.config sasl.login.class sasl.login.callback.handler.class"
    " sasl.client.callback.handler.class sasl.oauthbearer.token.endpoint.url"
    " ssl.truststore.type ssl.truststore.certificates ssl.truststore.location ssl.keystore.type"
    " ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location"
)
_C_ACCESS = (
    "sasl.mechanisms sasl.username sasl.password sasl.oauthbearer.method"
    " sasl.oauthbearer.client.id sasl.oauthbearer.client.credentials.client.id"
    " sasl.oauthbearer.client.secret sasl.oauthbearer.client.credentials.client.secret"
    " sasl.oauthbearer.config sasl.oauthbearer.token.endpoint.url sasl.oauthbearer.scope"
    " sasl.oauthbearer.extensions sasl.oauthbearer.grant.type sasl.oauthbearer.assertion.file"
    " sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.pem"
    " sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.sub"
    " sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.metadata.authentication.type"
    " https.ca.location https.ca.pem ssl.ca.location ssl.certificate.location ssl.key.location"
)
_CONSUMER = """
isolation.level = read_committed
    records of aborted transactions would be copied
check.crcs = true
    damaged records would be copied
"""
_PRODUCER = """
acks = all|-1
    with less, an acknowledged record can be lost
enable.idempotence = true
    without it the producer's own retries write records twice and in another order
max.in.flight.requests.per.connection = [1-5]
    with more than 5, idempotence does not keep the order
"""
_C_CLIENT = """
allow.auto.create.topics = false
    a Metadata request would create a missing topic, with the broker's default partitions
enable.ssl.certificate.verification = true
    without it any server is accepted as the broker
plugin.library.paths
    an interceptor can change or hold back records
error_cb stats_cb throttle_cb log_cb oauth_cb logger on_delivery dr_cb dr_msg_cb on_commit \
key.serializer value.serializer key.deserializer value.deserializer default.topic.config !
    reo sets it to a function; a text cannot replace that
"""
_SPARK_SOURCE = """
allow.auto.create.topics = false
    a Metadata request would create a missing topic, with the broker's default partitions
group.id groupidprefix
    Spark's tasks need a group of their own, which must not be the one that holds the frontier
auto.offset.reset enable.auto.commit key.deserializer value.deserializer interceptor.classes !
    Spark sets it itself and refuses another value
failondataloss = true
    a gap at the source would be skipped silently
includeheaders = true
    the copy would have no headers
assign subscribe subscribepattern
    the topic and its partitions are set by {source.topic} and the frontier
startingoffsets startingtimestamp startingoffsetsbytimestamp startingoffsetsbytimestampstrategy \
endingoffsets endingtimestamp endingoffsetsbytimestamp
    a run begins at the frontier: use {source.start} for where a copy begins
minpartitions maxrecordsperpartition
    one Spark task has to read all of a partition, in order
maxoffsetspertrigger minoffsetspertrigger maxtriggerdelay
    it limits a micro-batch, and Real-Time Mode has none
"""
_STAGE_ONE_PRODUCER = """
retries = 2147483647
    an envelope that is given up leaves a gap, which only a new run fills
delivery.timeout.ms
    an envelope that is given up leaves a gap, which only a new run fills: use
    {producer.delivery_timeout_ms}
transactional.id !
    stage one begins no transactions, so nothing could be written
interceptor.classes
    an interceptor can change or hold back records
key.serializer value.serializer !
    stage one sets it itself: envelopes are bytes
topic
    the intermediate topic is set by {intermediate.topic}
checkpointlocation
    a run begins at the frontier, never at a checkpoint of an earlier run
"""
_STAGE_TWO_CONSUMER = """
group.id
    the group's committed offsets are the frontier: use {application}
group.instance.id
    it distinguishes a restarted worker from a second one: use {instance}
group.protocol = classic !
    stage two needs eager rebalancing: all partitions at once
session.timeout.ms
    other parts of reo depend on it: use {deduplicator.session_timeout_ms}
partition.assignment.strategy = range|roundrobin|range,roundrobin|roundrobin,range
    stage two needs eager rebalancing: all partitions at once
auto.offset.reset = earliest|smallest|beginning
    with another value stage two stops at a position that is gone, or skips envelopes
enable.auto.commit auto.commit.enable enable.auto.offset.store = false
    offsets are committed in the transaction with the records, and nowhere else
enable.partition.eof = false
    stage two would treat the end of a partition as a failure
topic.metadata.refresh.interval.ms = [1-9][0-9]{0,4}
    added partitions would be noticed late or never
"""
_STAGE_TWO_PRODUCER = """
transactional.id
    it fences the predecessor and aborts its open transaction: use {application} and {instance}
transaction.timeout.ms message.timeout.ms delivery.timeout.ms
    other parts of reo depend on it: use {deduplicator.transaction_timeout_ms}
request.required.acks = all|-1
    with less, an acknowledged record can be lost
max.in.flight = [1-5]
    with more than 5, idempotence does not keep the order
retries message.send.max.retries = 2147483647
    a record that is given up ends its transaction, again and again
queuing.strategy = fifo
    the order of the records would be lost
delivery.report.only.error = false
    the delivered offset is part of the frontier: the check at the next start needs it
"""
_CONNECTION_LOG = """
log_level = 7
    {why}
debug = broker|all
    {why}
log.connection.close = true
    {why}
log.queue = false
    {why}
""".replace(
    "{why}",
    "reo sees a lost connection only in this log: a late EndTxn could end the next transaction",
)
_SPARK = """
spark.master !
    use {replicator.master}
spark.submit.deployMode = client !
    the driver is stage one's own process
spark.remote !
    stage one needs the JVM itself, not a server of Spark's
spark.api.mode = classic !
    stage one needs the JVM itself, not a server of Spark's
spark.jars spark.driver.extraClassPath !
    reo gives its own there: put jars into the folder that `reo setup` prints, and run it again
spark.driver.extraJavaOptions spark.executor.extraJavaOptions !
    reo gives its own there: use spark.driver.defaultJavaOptions and
    spark.executor.defaultJavaOptions
spark.driver.memory spark.executor.memory
    fetch sizes and the collector's generations are computed from it: use {replicator.memory_mb}
spark.task.cpus = 1 !
    the cores for which a run waits are counted by it
spark.default.parallelism !
    the cores for which a run waits are counted by it
spark.dynamicAllocation.enabled = false
    a run waits for a core for each partition, and executors would come when it has begun
spark.speculation = false
    a second attempt of a task at the same time would write every record once more
spark.sql.streaming.realTimeMode.allowlistCheck = false !
    Spark knows its own sinks only and would refuse stage one's
spark.sql.ansi.enabled = true
    {filter.sql} would silently leave out what it cannot decide
spark.sql.extensions spark.plugins
    an extension can change or hold back records
spark.redaction.regex
    secrets would be in the log
"""
_OF_SOURCE = _ACCESS.format(side="source", servers="bootstrap.servers", access=_JAVA_ACCESS)
_OF_INTERMEDIATE = _ACCESS.format(
    side="destination", servers="bootstrap.servers", access=_JAVA_ACCESS
)
_OF_C = _C_CLIENT + _ACCESS.format(
    side="destination", servers="bootstrap.servers metadata.broker.list", access=_C_ACCESS
)
GUARDED: Mapping[str, Mapping[str, Guard]] = {
    setting: _read_table("".join(tables))
    for setting, tables in {
        "source.consumer_options": (_OF_SOURCE, _CONSUMER, _SPARK_SOURCE),
        "intermediate.producer_options": (_OF_INTERMEDIATE, _PRODUCER, _STAGE_ONE_PRODUCER),
        "intermediate.consumer_options": (_OF_C, _CONSUMER, _STAGE_TWO_CONSUMER),
        "destination.producer_options": (
            _OF_C,
            _PRODUCER,
            _STAGE_TWO_PRODUCER,
            _CONNECTION_LOG,
        ),
        SPARK_OPTIONS_TABLE: (_SPARK,),
    }.items()
}
