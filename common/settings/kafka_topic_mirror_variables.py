"""kafka-topic-mirror's environment variables, translated to our settings. They are used only in an
environment of kafka-topic-mirror.

Its names have no prefix, so another program may use them: `CLIENT_ID` for a login, `CONSUMER_GROUP`
in a ConfigMap that two programs share. A single such variable could change the consumer group of a
copy that has run for months; the copy would then have no frontier. Therefore:

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


def _parse_start(newest: str) -> str:
    if newest not in GO_BOOLS:
        raise ValueError(f"true or false is expected, not {newest!r}")
    return GO_BOOLS[newest]


def _keep_text(text: str) -> str:
    return text


def _parse_address(listen: str) -> str:
    return _split_address(listen)[0]


def _parse_port(listen: str) -> str:
    return _split_address(listen)[1]


def _split_address(listen: str) -> tuple[str, str]:
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isascii() or not port.isdecimal():
        raise ValueError(f"host:port or :port is expected, not {listen!r}")
    return host.strip("[]"), port


NAMES: tuple[tuple[str, str, Callable[[str], str]], ...] = (
    ("INPUT_TOPIC", "source.topic", _keep_text),
    ("INPUT_BROKERS", "source.bootstrap_servers", _keep_text),
    ("OUTPUT_TOPIC", "destination.topic", _keep_text),
    ("OUTPUT_BROKERS", "destination.bootstrap_servers", _keep_text),
    ("CONSUMER_GROUP", "application", _keep_text),
    ("CLIENT_ID", "client_id", _keep_text),
    ("NEWEST_OFFSET", "source.start", _parse_start),
    ("PROM_SERVER_ADDR", "metrics.address", _parse_address),
    ("PROM_SERVER_ADDR", "metrics.port", _parse_port),
)
"""The variable, our setting, and the function that translates its value."""
VARIABLES = frozenset(name for name, _, _ in NAMES)


def has_required(environment: Mapping[str, str]) -> bool:
    """Whether this is an environment of kafka-topic-mirror: its required variables are set."""
    return all(environment.get(name) for name in REQUIRED_VARIABLES)


def translate_variables(
    environment: Mapping[str, str], errors: list[str]
) -> Iterator[tuple[str, str, str]]:
    """The variable, our setting and our value, for each variable that is set. Adds an error for
    each value that cannot be translated.
    """
    for name, setting, translate in NAMES if has_required(environment) else ():
        if environment.get(name):
            try:
                yield name, setting, translate(environment[name])
            except ValueError as reason:
                if f"{name}: {reason}" not in errors:
                    errors.append(f"{name}: {reason}")


def describe_missing(environment: Mapping[str, str]) -> str:
    """For the message about a missing setting: why one of the required variables alone is
    ignored.
    """
    present = [name for name in REQUIRED_VARIABLES if environment.get(name)]
    missing = [name for name in REQUIRED_VARIABLES if not environment.get(name)]
    return (
        f" ({present[0]} is ignored without {missing[0]}: it may be another program's)"
        if present and missing
        else ""
    )
