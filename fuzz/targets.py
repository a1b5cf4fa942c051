"""The invariants: pure functions from bytes to nothing. Any exception that leaves one is a finding.

What a parser accepts is compared with a naive reading of the same bytes (`naive_reading`): a parser
that takes too much is as wrong as one that crashes, because what it takes moves a frontier.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import orjson
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientTopicPartition

from common import frontier as frontiers
from common import origin as origins
from common import settings
from common.errors import ForeignRecord, FrontierUnreadable, SettingsInvalid, SourceRecreated
from common.frontier import Frontier, Link, RuleState
from common.kafka import intermediate_records, partition_offsets
from common.routes import TopicPartition
from common.settings import Settings
from common.settings.setting_index import BY_NAME
from common.settings.settings_sources import FILE_VARIABLE
from deduplicator.loop import Loop
from deduplicator.partitions import AssignedPartition, Partitions
from deduplicator.round_decisions import RoundDecisions
from deduplicator.rule import decide
from fuzz import naive_reading
from fuzz.compiled_scan import assert_as_python
from fuzz.messages import IDENTITY, PARTITIONS, Message, parse_messages

COMMITTED_FRONTIER = Frontier(
    RuleState(10, 1_795_000_000_000, Link(10, 7, 3)),
    IDENTITY,
    PARTITIONS,
    "kVd3Zx0ASoO3n9X1mOQ8ew",
    21,
    3,
)
REQUIRED_SETTINGS = {
    "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1",
    "REO_SOURCE_TOPIC": "orders",
    "REO_DESTINATION_BOOTSTRAP_SERVERS": "b:1",
}
FILE_SUFFIXES = (".toml", ".yaml", ".json", ".ini")
FOLDER = Path(tempfile.gettempdir())


def origin_header(data: bytes) -> None:
    """`origin.parse` accepts exactly the origins (their length, their version, each integer in its
    range); all else is a ValueError. Encoded again, it is the same.
    """
    is_origin = naive_reading.is_origin(data)
    try:
        origin = origins.parse(data)
    except ValueError:
        assert not is_origin, f"an origin is refused: {data!r}"
        return
    assert is_origin, f"this is no origin: {origin}"
    assert origins.encode(origin) == data


def records(data: bytes) -> None:
    """No batch crashes stage two, and a refused one moves nothing: a record that is no origin of
    its partition is a ForeignRecord, from `split_by_partition` as from `origin_of`. Frontiers move
    only to offsets that were accepted, a new state can be committed and read again, and what a
    record carried is kept.
    """
    batch = list(parse_messages(data))
    assigned_partitions = range(PARTITIONS - 1)  # the last partition is revoked
    states = {
        TopicPartition("orders-proxy", partition): AssignedPartition(0, COMMITTED_FRONTIER, None)
        for partition in assigned_partitions
    }
    partitions = Partitions()
    partitions.start(states)
    loop = Loop(settings.load(REQUIRED_SETTINGS), {}, partitions, *[cast(Any, None)] * 4)
    loop.zero_timestamp_ms = 1
    is_valid = all(naive_reading.is_from_stage_one(message) for message in batch)
    middle = len(batch) // 2
    try:
        for messages in (batch[:middle], batch[middle:]):
            loop.decide(messages)
    except ForeignRecord:
        assert not is_valid, "a record of stage one is refused"
        _assert_parse_origin_refuses(batch)
        assert partitions.assigned == states
        return
    except SourceRecreated:
        assert partitions.assigned == states
        return
    assert is_valid, "a record is taken that stage one did not write"
    assert partitions.assigned == states, "nothing moves before the commit"
    assert loop.work.keys() == {
        tp for tp in states if any(message.of_partition == tp.partition for message in batch)
    }
    for tp, work in loop.work.items():
        _assert_matches_rule(
            work, [message for message in batch if message.of_partition == tp.partition]
        )
        after = loop.round_output.build_next_state(tp, work).frontier
        assert frontiers.decode(after.encode()) == after, (
            "stage two would commit what nobody can read"
        )


def _assert_matches_rule(work: RoundDecisions, consumed: list[Message]) -> None:
    """What was decided in two batches is what the rule says of all records at once, and each
    accepted record is as it was.
    """
    expected = decide(
        COMMITTED_FRONTIER.rule,
        [intermediate_records.parse_origin(message) for message in consumed],
    )
    accepted = [consumed[position] for position in expected.accepted]
    assert (work.rule, work.duplicates, work.stale, work.holes) == (
        expected.state,
        expected.duplicates,
        expected.stale,
        expected.holes,
    )
    assert (work.consumed, work.next_offset) == (len(consumed), consumed[-1].offset() + 1)
    assert work.source_offsets == [
        intermediate_records.parse_origin(message).source_offset for message in accepted
    ]
    assert work.source_offsets == sorted(set(work.source_offsets))
    assert (
        work.rule.frontier
        == (work.source_offsets[-1] if work.source_offsets else COMMITTED_FRONTIER.rule.frontier)
        >= COMMITTED_FRONTIER.rule.frontier
    )
    assert work.consumed == len(work.records) + work.duplicates + work.stale + work.holes, (
        "every record is accepted or counted"
    )
    for (key, value, headers, _), message in zip(work.records, accepted, strict=True):
        assert (key, value, headers or []) == (
            message.key(),
            message.value(),
            (message.headers() or [])[:-1],
        )


def compiled_scan(data: bytes) -> None:
    """The compiled path decides the records of a partition, in two batches, as Python does, or
    leaves a batch to it; what it reads and writes is its own (a sanitizer ends the process).
    """
    values = [
        message.all_headers[-1][1] or b""
        for message in parse_messages(data)
        if message.of_partition == 0 and message.all_headers
    ]
    state = COMMITTED_FRONTIER.rule
    middle = len(values) // 2
    for batch in filter(None, (values[:middle], values[middle:])):
        if not assert_as_python(state, batch):
            return
        state = decide(state, [origins.parse(value) for value in batch]).state


def metadata(data: bytes) -> None:
    """`frontier.decode` accepts exactly the frontiers of this version; all else is a ValueError,
    and `partition_offsets.read_commits` makes it a FrontierUnreadable. A frontier that was read is
    written as it was, so far as the fields go, and reads the same again.
    """
    text = data.decode(errors="surrogateescape")
    is_frontier = naive_reading.is_frontier(text)
    try:
        frontier = frontiers.decode(text)
    except ValueError:
        assert not is_frontier, f"a frontier is refused: {text!r}"
        _assert_unreadable(text)
        return
    assert is_frontier, f"this is no frontier: {text!r}"
    assert frontiers.decode(frontier.encode()) == frontier
    read, written = orjson.loads(text), orjson.loads(frontier.encode())
    assert {name: _with_type(read.get(name)) for name in written} == {
        name: _with_type(value) for name, value in written.items()
    }


def environment(data: bytes) -> None:
    """Any environment gives settings or SettingsInvalid. Settings hand themselves down to a child
    process unchanged, and are texts that clients take.
    """
    variables = dict(REQUIRED_SETTINGS)
    for entry in data.split(b"\0"):
        name, equals, value = os.fsdecode(entry).partition("=")
        if equals and name:
            variables[name] = value
    file = variables.get(FILE_VARIABLE)
    if file and _file_exists(file):
        # what happens to lie on this machine is not the fuzzer's to read
        del variables[FILE_VARIABLE]
    _assert_round_trip(variables)


def settings_file(data: bytes) -> None:
    """Any file gives settings or SettingsInvalid; texts are those of the file, never a number's or
    a list's way to be printed. The first byte is the form.
    """
    if not data:
        return
    file = FOLDER / f"reo-fuzz-{os.getpid()}{FILE_SUFFIXES[data[0] % len(FILE_SUFFIXES)]}"
    file.write_bytes(data[1:])
    try:
        loaded = _assert_round_trip({FILE_VARIABLE: str(file)} | REQUIRED_SETTINGS)
    finally:
        file.unlink()
    if loaded is None:
        return
    for name in ("application", "instance", "intermediate.topic", "destination.topic"):
        printed = str(loaded.values[name])
        assert printed not in {"None", "True", "False"} or printed.encode() in data, (
            f"{name} is {printed!r}"
        )
        assert not printed.startswith(("[", "{")) or printed.encode() in data, (
            f"{name} is {printed!r}"
        )


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    "origin_header": origin_header,
    "records": records,
    "compiled_scan": compiled_scan,
    "metadata": metadata,
    "environment": environment,
    "settings_file": settings_file,
}


def _assert_parse_origin_refuses(batch: list[Message]) -> None:
    refused = 0
    for message in batch:
        try:
            intermediate_records.parse_origin(message)
        except ForeignRecord:
            refused += 1
    assert refused, "split_by_partition and origin_of do not agree"


def _assert_unreadable(text: str) -> None:
    try:
        answer = ClientTopicPartition("orders-proxy", 0, 5, text)
    except ValueError:
        return  # NUL, or no UTF-8: a client does not hand out such a text

    class Group:
        """A consumer whose group has this metadata."""

        def committed(
            self, _: list[ClientTopicPartition], **__: float
        ) -> list[ClientTopicPartition]:
            return [answer]

    try:
        partition_offsets.read_commits(cast(Consumer, Group()), [TopicPartition("orders-proxy", 0)])
    except FrontierUnreadable:
        return
    raise AssertionError(f"a commit that is no frontier is taken for one: {text!r}")


def _with_type(value: object) -> object:
    return (
        [(type(part), part) for part in value] if isinstance(value, list) else (type(value), value)
    )


def _assert_round_trip(variables: Mapping[str, str]) -> Settings | None:
    """The settings, if they are accepted."""
    try:
        loaded = settings.load(variables)
    except SettingsInvalid:
        return None
    environment = loaded.build_environment()
    assert settings.load(environment).values == loaded.values
    assert loaded.values.keys() == BY_NAME.keys()
    for name, text in environment.items():
        assert "\0" not in text, f"no process can be given {name}={text!r}"
        text.encode()  # a client takes UTF-8
    return loaded


def _file_exists(file: str) -> bool:
    try:
        return Path(file).exists()
    except (OSError, ValueError):
        return False
