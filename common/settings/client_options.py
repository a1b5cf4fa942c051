"""Raw options of the four Kafka clients on the path of a record, and of Spark; and which of them
are guarded.

| setting | client | whose options | |---|---|---| | `source.consumer_options` | stage one reads the
source | Kafka's Java consumer, or Spark's Kafka source | | `intermediate.producer_options` | stage
one writes the intermediate topic | Kafka's Java producer | | `intermediate.consumer_options` |
stage two reads the intermediate topic | librdkafka | | `destination.producer_options` | stage two
writes the destination | librdkafka | | `replicator.spark_options` | none: stage one's Spark
(`common.settings.spark_options`) | Spark |

They are passed through unchanged, and override what reo would set. But an exact copy depends on
some of them: those are in `GUARDED`, each with the reason and with the values that are harmless.
Any other value is refused, unless `allow_unsafe_options` is set: then it is passed, and every
process logs that. A value that cannot work at all is always refused. Sources: Kafka's documentation
("Consumer Configs", "Producer Configs"), librdkafka's CONFIGURATION.md with its aliases, Spark's
"Structured Streaming + Kafka Integration Guide" (options of Spark itself are known here by name;
all others go to Kafka).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from common.settings import spark_options
from common.settings.candidate_settings import CANDIDATES_MAX, candidate_setting_name
from common.settings.guard import Guard

ALLOW_UNSAFE = "allow_unsafe_options"
SECRET = re.compile(
    r"(?i)secret|password|passphrase|token|jaas|credential|private|key\b|pem\b|sasl[.]oauthbearer[.]config"
)
"""Names of options whose values are never shown."""
NAME = re.compile(r"[a-z][a-z0-9]*([._][a-z0-9]+)*")
"""The form of Kafka's option names. Other names cannot be written as an environment variable in
capitals.
"""
DEPTH_MAX = 12
"""`ssl.keystore.certificate.chain` is four tables deep in TOML. A YAML table that refers to itself
exceeds any depth.
"""


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
_CALLBACK = Guard("reo sets it to a function; a text cannot replace that", always=True)
_INTERCEPTOR = Guard("an interceptor can change or hold back records")
_START_OFFSETS = Guard(
    "a run begins at the frontier, partition by partition: use source.start for where a copy begins"
)
_ONE_TASK = Guard(
    "the sequence numbers need one Spark task for each partition, which reads all of it in order"
)
_COMMITTED = Guard("records of aborted transactions would be copied", "read_committed")
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
_SPARK_SINK = {
    **_guard_access("destination", "https", *_JAVA_ACCESS),
    "acks": _ACKS,
    "enable.idempotence": _IDEMPOTENCE,
    "max.in.flight.requests.per.connection": _IN_FLIGHT,
    "retries": Guard(
        "a record that is given up is a hole, which only a new run fills", "2147483647"
    ),
    "delivery.timeout.ms": Guard(
        "a record that is given up is a hole, which only a new run fills: use"
        " producer.delivery_timeout_ms"
    ),
    "transactional.id": Guard(
        "Spark's sink begins no transactions, so nothing could be written", always=True
    ),
    "interceptor.classes": _INTERCEPTOR,
    **dict.fromkeys(("key.serializer", "value.serializer"), _SET_BY_SPARK),
    "topic": Guard("the intermediate topic is set by intermediate.topic"),
    "includeheaders": Guard("the origin is a header: without it nothing could be copied", "true"),
    "checkpointlocation": Guard(
        "a run begins at the frontier, never at a checkpoint of an earlier run"
    ),
}
_C_CLIENT = {
    **_guard_access("destination", "https", *_C_ACCESS),
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
        "a missing offset would be skipped silently instead of examined", "error"
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
    "log_level": Guard(_CONNECTION_LOG.reason, "[67]"),
    "log.connection.close": Guard(_CONNECTION_LOG.reason, "true"),
    "log.queue": Guard(_CONNECTION_LOG.reason, "false"),
}
GUARDED: Mapping[str, Mapping[str, Guard]] = {
    "source.consumer_options": _SPARK_SOURCE,
    "intermediate.producer_options": _SPARK_SINK,
    "intermediate.consumer_options": _STAGE_TWO_CONSUMER,
    "destination.producer_options": _STAGE_TWO_PRODUCER,
    spark_options.SETTING: spark_options.GUARDS,
}
CANDIDATE_TABLES = tuple(
    candidate_setting_name(number, "source.consumer_options")
    for number in range(1, CANDIDATES_MAX + 1)
)
OPTION_TABLES = (*GUARDED, *CANDIDATE_TABLES)
"""Every table of raw options."""
SPARK_OPTIONS = frozenset(
    {
        "failondataloss",
        "includeheaders",
        "assign",
        "subscribe",
        "subscribepattern",
        "startingoffsets",
        "startingtimestamp",
        "startingoffsetsbytimestamp",
        "startingoffsetsbytimestampstrategy",
        "endingoffsets",
        "endingtimestamp",
        "endingoffsetsbytimestamp",
        "minpartitions",
        "maxrecordsperpartition",
        "maxoffsetspertrigger",
        "minoffsetspertrigger",
        "maxtriggerdelay",
        "groupidprefix",
        "kafkaconsumer.polltimeoutms",
        "fetchoffset.numretries",
        "fetchoffset.retryintervalms",
        "topic",
        "checkpointlocation",
    }
)
"""Options of Spark's Kafka source and sink themselves, which are not case-sensitive."""


def get_guards(table: str) -> Mapping[str, Guard]:
    """The guarded options of a table."""
    return GUARDED["source.consumer_options" if table in CANDIDATE_TABLES else table]


def get_variable(setting: str, option: str) -> str:
    """The environment variable of one option. As with Confluent's images, a dot is `_`, and `_` is
    `__`; in capitals, except Spark's options.
    """
    words = option.replace("_", "__").replace(".", "_")
    prefix = get_variable_prefix(setting)
    return prefix + (words if setting == spark_options.SETTING else words.upper())


def get_variable_prefix(setting: str) -> str:
    """The prefix of the variables of a table."""
    return f"REO_{setting.upper().replace('.', '_')}_"


def parse_variable(name: str) -> tuple[str, str] | None:
    """The table and the option that an environment variable sets, or None."""
    for setting in OPTION_TABLES:
        if name.startswith(get_variable_prefix(setting)) and name != get_variable_prefix(setting):
            words = name.removeprefix(get_variable_prefix(setting))
            words = words if setting == spark_options.SETTING else words.lower()
            return setting, "_".join(word.replace("_", ".") for word in words.split("__"))
    return None


def flatten(table: object, prefix: str = "", depth: int = 1) -> Iterator[tuple[str, Any]]:
    """Dotted names and values of a table in a settings file: TOML reads `client.rack` as a table
    `client`. ValueError when it is no table of options.
    """
    if not isinstance(table, Mapping) or depth > DEPTH_MAX:
        raise ValueError(
            "a table of options is expected, each with a text, a number, true or false"
        )
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.", depth + 1)
        else:
            name = f"{prefix}{key}"
            yield name.lower() if name.lower() in SPARK_OPTIONS else name, value


def to_text(value: object) -> str:
    """An option's value as the clients expect it. No message repeats the value: it may be a
    secret.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise ValueError("a text, a number, true or false is expected: put it in quotes")  # noqa: TRY004  (what is wrong with a setting is a ValueError)
    # PEM is several lines
    if not all(character.isprintable() or character in "\t\n\r" for character in str(value)):
        raise ValueError("printable characters are expected")
    return str(value)


def validation_errors(
    setting: str, options: Mapping[str, str], allow_unsafe: bool
) -> Iterator[str]:
    """One message for each option that is not passed through, with the reason."""
    for option, value in options.items():
        guard = get_guards(setting).get(option)
        if setting == spark_options.SETTING and not spark_options.NAME.fullmatch(option):
            yield (
                f"{setting}: {option!r} is not the name of an option of Spark's, which begins with"
                " spark. and keeps its upper and lower case"
            )
        elif setting != spark_options.SETTING and not NAME.fullmatch(option):
            yield f"{setting}: {option!r} is not the name of an option"
        elif option.startswith("kafka."):
            yield (
                f"{setting}.{option}: options of Kafka's client are given without `kafka.` before"
                " them"
            )
        elif guard and not guard.allows(value) and (guard.always or not allow_unsafe):
            allowed = (
                f" ({guard.harmless.replace('|', ', ')} are allowed)" if guard.harmless else ""
            )
            switch = (
                ""
                if guard.always
                else f". {ALLOW_UNSAFE}=true passes it, and then reo does not promise an exact copy"
            )
            yield f"{setting}.{option} is not passed through{allowed}: {guard.reason}{switch}"


def list_unsafe_options(setting: str, options: Mapping[str, str]) -> Iterator[str]:
    """A log line for each option that is passed through only because `allow_unsafe_options` is
    set.
    """
    for option, value in options.items():
        guard = get_guards(setting).get(option)
        if guard and not guard.allows(value):
            yield (
                f"UNSAFE: {setting} sets {option}, which reo refuses without {ALLOW_UNSAFE}:"
                f" {guard.reason}. reo does not promise an exact copy"
            )


def to_spark_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options in Spark's form."""
    return {
        option if option in SPARK_OPTIONS else f"kafka.{option}": value
        for option, value in options.items()
    }


def redact(option: str, value: str) -> str:
    """A value for display, without secrets."""
    return "(secret)" if SECRET.search(option) else value
