"""Environment variables of kafka-topic-mirror, translated to our settings, and those of it and of
kafka-reo that have no effect here. No I/O.

kafka-topic-mirror's names have no prefix, so another program may use them: `CLIENT_ID` for a login,
`CONSUMER_GROUP` in a ConfigMap that two programs share. A single such variable could change the
consumer group of a copy that has run for months; the copy would then have no frontier. Therefore:

- they are read only when both variables that kafka-topic-mirror requires are set, `INPUT_TOPIC` and
  `OUTPUT_TOPIC`;
- they override nothing: when the settings file or another variable has a different value for the
  same setting, that is an error which names both.

An empty value counts as not set, as in kafka-topic-mirror. Three things differ: without
`NEWEST_OFFSET` a copy begins at the earliest record, not at the newest, so that no record is left
out silently; without brokers there is an error, not localhost:9092; `MAX_PUBLISH`, the size of a
batch, is ignored. Source: its main.go, which declares the names and their defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

REQUIRED_VARIABLES = ("INPUT_TOPIC", "OUTPUT_TOPIC")
GO_BOOLS = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), "latest"),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), "earliest"),
}
"""The values that Go's strconv.ParseBool accepts, as values of source.start."""
KAFKA_REO_PREFIX = "KAFKA_CLUSTERS_"
"""The prefix of kafka-reo's variables for its clusters."""
KAFKA_REO_VARIABLES = {
    "STREAMS_NUM_STANDBY_REPLICAS": (
        "there is no state store that could have a replica: all state is in the destination cluster"
    ),
    "STREAMS_BUFFER_CONFIG_MAX_BYTES": (
        "there is no buffer of Kafka Streams; to size the clients' buffers, use their raw options"
    ),
    "LOG_LEVEL": "it has no prefix, so it may be another program's: use REO_LOG_LEVEL",
}
TOPIC_MIRROR_VARIABLES = {
    "MAX_PUBLISH": "batches are bounded by deduplicator.transaction_records and by the clients",
}
IGNORED = KAFKA_REO_VARIABLES | TOPIC_MIRROR_VARIABLES


def _parse_start(newest: str) -> str:
    if newest not in GO_BOOLS:
        raise ValueError(f"true or false is expected, not {newest!r}")
    return GO_BOOLS[newest]


def _split_address(listen: str) -> tuple[str, str]:
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isascii() or not port.isdecimal():
        raise ValueError(f"host:port or :port is expected, not {listen!r}")
    return host.strip("[]"), port


NAMES: tuple[tuple[str, str, Callable[[str], str]], ...] = (
    ("INPUT_TOPIC", "source.topic", str),
    ("INPUT_BROKERS", "source.bootstrap_servers", str),
    ("OUTPUT_TOPIC", "destination.topic", str),
    ("OUTPUT_BROKERS", "destination.bootstrap_servers", str),
    ("CONSUMER_GROUP", "application", str),
    ("CLIENT_ID", "client_id", str),
    ("NEWEST_OFFSET", "source.start", _parse_start),
    ("PROM_SERVER_ADDR", "metrics.address", lambda listen: _split_address(listen)[0]),
    ("PROM_SERVER_ADDR", "metrics.port", lambda listen: _split_address(listen)[1]),
)
"""The variable, our setting, and the function that translates its value."""
VARIABLES = frozenset(name for name, _, _ in NAMES)


def translate_variables(
    environment: Mapping[str, str], errors: dict[str, str]
) -> Iterator[tuple[str, str, str]]:
    """The variable, our setting and our value, for each variable that is set. Adds an error for
    each value that cannot be translated.
    """
    for name, setting, translate in NAMES if _is_topic_mirrors(environment) else ():
        if environment.get(name):
            try:
                yield name, setting, translate(environment[name])
            except ValueError as reason:
                errors[name] = f"{name}: {reason}"


def describe_missing(environment: Mapping[str, str]) -> str:
    """Why one of the required variables alone is ignored, for a missing setting."""
    present, *more = sorted(REQUIRED_VARIABLES, key=lambda name: not environment.get(name))
    if not environment.get(present) or environment.get(more[0]):
        return ""
    return f" ({present} is ignored without {more[0]}: it may be another program's)"


def list_ignored(environment: Mapping[str, str]) -> Iterator[str]:
    """One message for each variable that is set and has no effect, in an environment that is
    clearly that of kafka-reo or kafka-topic-mirror.
    """
    names: list[str] = []
    if any(name.startswith(KAFKA_REO_PREFIX) for name in environment):
        names += KAFKA_REO_VARIABLES
    if _is_topic_mirrors(environment):
        names += TOPIC_MIRROR_VARIABLES
    yield from (f"{name} has no effect: {IGNORED[name]}" for name in names if environment.get(name))


def _is_topic_mirrors(environment: Mapping[str, str]) -> bool:
    return all(environment.get(name) for name in REQUIRED_VARIABLES)
