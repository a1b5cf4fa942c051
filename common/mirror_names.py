"""kafka-topic-mirror's environment variables for our settings, used only where its whole environment is meant.

Its names have no prefix, so any of them may be there for another program: a `CLIENT_ID` of some login, a `CONSUMER_GROUP` of a neighbour in the same
ConfigMap. Taken alone, that one would give a copy that has run for months another consumer group, and with it no frontier. Therefore:

- they are looked at only when both names that kafka-topic-mirror cannot do without are there, `INPUT_TOPIC` and `OUTPUT_TOPIC`;
- they never win: where the settings file or another variable says something else for the same setting, that is an error which names both.

An empty value counts as not given, as there. What is different: without `NEWEST_OFFSET` a copy begins at the earliest record, not at the newest, so that
nothing is left out unsaid; without brokers there is an error, not localhost:9092; `MAX_PUBLISH`, the size of a batch, is not looked at.
Source: its main.go, where the names and their defaults are declared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

SIGNATURE = ("INPUT_TOPIC", "OUTPUT_TOPIC")
GO_BOOLS = {**dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), "latest"), **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), "earliest")}
"""What Go's strconv.ParseBool reads, and what it means for source.start."""


def _start(newest: str) -> str:
    if newest not in GO_BOOLS:
        raise ValueError(f"true or false is expected, not {newest!r}")
    return GO_BOOLS[newest]


def _as_it_is(text: str) -> str:
    return text


def _address(listen: str) -> str:
    return _split(listen)[0]


def _port(listen: str) -> str:
    return _split(listen)[1]


def _split(listen: str) -> tuple[str, str]:
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isascii() or not port.isdecimal():
        raise ValueError(f"host:port or :port is expected, not {listen!r}")
    return host.strip("[]"), port


NAMES: tuple[tuple[str, str, Callable[[str], str]], ...] = (
    ("INPUT_TOPIC", "source.topic", _as_it_is), ("INPUT_BROKERS", "source.bootstrap_servers", _as_it_is),
    ("OUTPUT_TOPIC", "destination.topic", _as_it_is), ("OUTPUT_BROKERS", "destination.bootstrap_servers", _as_it_is),
    ("CONSUMER_GROUP", "application", _as_it_is), ("CLIENT_ID", "client_id", _as_it_is), ("NEWEST_OFFSET", "source.start", _start),
    ("PROM_SERVER_ADDR", "metrics.address", _address), ("PROM_SERVER_ADDR", "metrics.port", _port),
)
"""Its name, our setting, and how its value is one of ours."""
VARIABLES = frozenset(name for name, _, _ in NAMES)


def are_meant(environment: Mapping[str, str]) -> bool:
    """Whether this is an environment of kafka-topic-mirror."""
    return all(environment.get(name) for name in SIGNATURE)


def given(environment: Mapping[str, str], wrong: list[str]) -> Iterator[tuple[str, str, str]]:
    """Its name, our setting and our value, of all that it gives."""
    for name, setting, ours in NAMES if are_meant(environment) else ():
        if environment.get(name):
            try:
                yield name, setting, ours(environment[name])
            except ValueError as reason:
                if f"{name}: {reason}" not in wrong:
                    wrong.append(f"{name}: {reason}")


def hint(environment: Mapping[str, str]) -> str:
    """For the message about a missing setting: half of an environment of kafka-topic-mirror is not taken, and why."""
    there = [name for name in SIGNATURE if environment.get(name)]
    lacking = [name for name in SIGNATURE if not environment.get(name)]
    return f" ({there[0]} is not looked at without {lacking[0]}: it may be another program's)" if there and lacking else ""
