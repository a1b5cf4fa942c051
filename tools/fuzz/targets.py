"""The invariants: functions from bytes to nothing. Any exception that leaves one is a finding.

What a parser accepts is compared with another reading of the same bytes (`naive_reading`, the
compiled path): a parser that takes too much is as wrong as one that crashes, because what it takes
moves a frontier.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import cast

import orjson
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientTopicPartition

from common import frontier as frontiers
from common import settings
from common.envelope import OFFSET_MAX, EnvelopeInvalid, EnvelopeRecord
from common.errors import ForeignRecord, FrontierUnreadable, SettingsInvalid, SourceRecreated
from common.frontier import Frontier
from common.kafka import partition_offsets
from common.kafka.intermediate_records import parse_intermediate
from common.routes import TopicPartition
from common.settings import Settings
from common.settings.schema import BY_NAME
from common.settings.value_sources import FILE_VARIABLE
from deduplicator.partition import Partition
from deduplicator.rule import RuleState, decide
from deduplicator.unwrap import Record
from tools.envelope_encoder import encode
from tools.fuzz import naive_reading
from tools.fuzz.collecting_producer import CollectingProducer
from tools.fuzz.compiled_forward import RECORDS_MAX, assert_as_python, read_envelope
from tools.fuzz.messages import IDENTITY, OLD_FORMAT, PARTITIONS, Message, parse_messages
from tools.fuzz.rounds import REQUIRED_SETTINGS, ROUTE, ZERO_TIMESTAMP_MS, Rounds

COMMITTED_FRONTIER = Frontier(
    41, 1_795_000_000_000 << 20, IDENTITY, PARTITIONS, "kVd3Zx0ASoO3n9X1mOQ8ew", 21, 3
)
ABOVE = (-1, 41, 43, OFFSET_MAX)
BELOW = (OFFSET_MAX, 46, 44, 0)
FILE_SUFFIXES = (".toml", ".yaml", ".json", ".ini")
FOLDER = Path(tempfile.gettempdir())


def envelope(data: bytes) -> None:
    """`parse_head` and `read_records` accept a value, or refuse it with EnvelopeInvalid. What they
    accept is the same when it is written and read again. The compiled path accepts the same values,
    and hands over the same records, from any source offset to any other; what it reads and writes
    is its own (a sanitizer ends the process). The first byte chooses the offsets.
    """
    if not data:
        return
    choice, value = data[0], data[1:]
    above, below = ABOVE[choice & 3], BELOW[choice >> 2 & 3]
    if assert_as_python(open_producer(), value, above, below, choice >> 4 & 1):
        head, found = read_envelope(value)
        again, found_again = read_envelope(encode(head, found))
        # a number may be longer than it has to be
        assert again._replace(last_position=0) == head._replace(last_position=0)
        assert found_again == found


@cache
def open_producer() -> CollectingProducer:
    """One for all inputs."""
    return CollectingProducer(RECORDS_MAX)


def records(data: bytes) -> None:
    """No message crashes stage two. One that is no envelope of its partition is a ForeignRecord,
    one of another source topic a SourceRecreated, one of the old format is counted. What is written
    is what the rule accepts, whether envelopes are written whole or record by record, in rounds of
    any size; every record is written or counted; each state can be committed and read again. The
    first byte chooses the way and the size.
    """
    if not data:
        return
    batch = list(parse_messages(data[1:]))
    assigned = [  # the last partition is revoked
        Partition(ROUTE.get_intermediate(partition), ROUTE, 0, COMMITTED_FRONTIER)
        for partition in range(PARTITIONS - 1)
    ]
    expected: dict[TopicPartition, Expected] | None
    try:
        expected = {
            tp: _expect(message for message in batch if message.of_partition == tp.partition)
            for tp in (partition.tp for partition in assigned)
        }
    except (ForeignRecord, EnvelopeInvalid, SourceRecreated):
        expected = None
    rounds = Rounds(batch, assigned, records_max=1 + data[0] // 2 % 8, can_forward=data[0] % 2 == 1)
    try:
        rounds.run()
    except (ForeignRecord, SourceRecreated):
        assert expected is None, "what stage one writes is refused"
        return
    assert expected is not None, "what stage one does not write is accepted"
    for tp, (rule, written, counts) in expected.items():
        frontier = rounds.partitions.assigned[tp].frontier
        assert (frontier.source_offset, frontier.epoch, frontier.gap) == rule
        assert rounds.list_written(tp) == written
        assert +rounds.counts[tp] == +counts
        offset = sum(message.of_partition == tp.partition for message in batch)
        assert rounds.partitions.assigned[tp].next_offset == offset
        assert counts["consumed"] == len(written) + sum(counts.values()) - counts["consumed"]


Expected = tuple[RuleState, list[Record], Counter[str]]


def _expect(messages: Iterable[Message]) -> Expected:
    """What has to become of a partition's messages: the rule's state, what is written, and how
    often what is counted.
    """
    committed = COMMITTED_FRONTIER
    state = RuleState(committed.source_offset, committed.epoch, committed.gap)
    written: list[EnvelopeRecord] = []
    counts: Counter[str] = Counter()
    for message in messages:
        head = parse_intermediate(message, message.partition())
        if head is None:
            assert message.kind == OLD_FORMAT
            counts.update({"consumed": 1, "old format": 1})
            continue
        offset = state.source_offset
        decision, state = decide(state, head)
        counts["consumed"] += head.record_count
        if decision == "accepted":
            if head.source_identity != IDENTITY:
                raise SourceRecreated
            _, found = read_envelope(message.content)
            new = [record for record in found if record.source_offset > offset]
            counts["duplicate"] += len(found) - len(new)
            written += new
        else:
            counts[decision] += head.record_count
    offsets = [record.source_offset for record in written]
    assert offsets == sorted(set(offsets))
    assert all(committed.source_offset < offset <= state.source_offset for offset in offsets)
    return state, [_expect_record(record) for record in written], counts


def _expect_record(record: EnvelopeRecord) -> Record:
    headers = [(name.decode(), value) for name, value in record.headers]
    timestamp_ms = record.timestamp_ms or ZERO_TIMESTAMP_MS
    return record.key, record.value, headers or None, timestamp_ms


def metadata(data: bytes) -> None:
    """`frontier.decode` accepts exactly the frontiers of the versions that it can read; all else is
    a ValueError, and `partition_offsets.read_commits` makes it a FrontierUnreadable. A frontier
    that was read is written as it was, so far as the fields go, with the version of today, and
    reads the same again.
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
    read, written = orjson.loads(text) | {"v": frontiers.VERSION}, orjson.loads(frontier.encode())
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
    "envelope": envelope,
    "records": records,
    "metadata": metadata,
    "environment": environment,
    "settings_file": settings_file,
}


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
