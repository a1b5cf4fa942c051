"""The compiled path beside Python's: the same decisions from the same bytes, and the same records from and to a real broker."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from hypothesis import given, settings
from hypothesis import strategies as st

from common import origin as origins
from common.frontier import RuleState
from common.origin import HEADER, OFFSET_MAX, Origin, encode
from common.records import all_headers, content
from common.routes import SAME, Place, Route
from common.settings import load
from deduplicator import compiled, hot_path
from deduplicator.compiled import Queue, Run, Taken
from deduplicator.rule import decide
from deduplicator.unwrap import by_partition
from tests.attempts import IDENTITY, StageOne
from tests.conftest import Start
from tests.judge import Record
from tests.kafka import Clusters, spread, until
from tests.recovering import numbered
from tests.stage_one import feed, frontiers_are_made, wrapped
from tests.test_rule import ANY_STATE, written
from tests.test_settings import GOOD

RECORDS = 3000
ROUTE = Route("orders", "orders", "orders-proxy")


class Made(Taken):
    """A batch that no client has taken: origins at consecutive offsets of one partition."""

    def __init__(self, values: Sequence[bytes], partition: int = 0) -> None:
        super().__init__(hot_path.library())
        self.kept = [ctypes.create_string_buffer(value, max(1, len(value))) for value in values]
        self.raw.count = len(values)
        for position, value in enumerate(values):
            self.raw.origins[position] = ctypes.addressof(self.kept[position])
            self.raw.origin_sizes[position] = len(value)
            self.raw.offsets[position], self.raw.partitions[position], self.raw.plain[position] = position, partition, 1

    def release(self) -> None:
        """There are no messages."""


def assert_as_python(state: RuleState, values: Sequence[bytes]) -> bool:
    """The scan decides as `rule.decide` does, or leaves all of it to Python, and only for a reason; returns whether it decided."""
    decided = Run(Made(values), 0, len(values)).scan(state, IDENTITY)
    try:
        parsed: list[Origin] | None = [origins.parse(value) for value in values]
    except ValueError:
        parsed = None
    if parsed is None or any(found.source_partition != 0 or found.timestamp_ms <= 0 for found in parsed):
        assert decided is None, "what is no origin of this partition, or has no timestamp that can be written as it is, is Python's"
        return False
    expected = decide(state, parsed)
    if any(parsed[position].source_identity != IDENTITY for position in expected.accepted):
        assert decided is None, "another topic's record would be written"
        return False
    assert decided is not None, "nothing is unusual here"
    found_positions = [decided.records.positions[number] for number in range(len(decided.records))]
    assert (decided.state, found_positions) == (expected.state, expected.accepted)
    assert (decided.duplicates, decided.stale, decided.holes) == (expected.duplicates, expected.stale, expected.holes)
    assert list(decided.records.source_offsets) == [parsed[position].source_offset for position in expected.accepted]
    return True


@given(ANY_STATE, st.integers(0, 2**32), st.integers(0, 30))
@settings(max_examples=1500, deadline=None)
def test_runs_with_retries_holes_and_zombies_are_decided_alike(state: RuleState, seed: int, cut: int) -> None:
    """The streams that the rule itself is tested with, from any state."""
    values = [encode(record) for record in written(seed, 30)]
    for part in (values[:cut], values[cut:]):
        if part:
            assert assert_as_python(state, part)


@given(st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_what_stage_one_may_do_at_its_worst_is_decided_alike(seed: int) -> None:
    """Batch after batch, each from the state that the one before has left."""
    chance = random.Random(seed)
    stage_one, state = StageOne(sorted(chance.sample(range(30), 20)), chance), RuleState(-1, 0, None)
    for _ in range(20):
        values = [encode(record) for record in (stage_one.step(state) for _ in range(chance.randint(1, 9))) if record]
        if values:
            assert assert_as_python(state, values)
            state = decide(state, [origins.parse(value) for value in values]).state


EDGES = st.sampled_from([0, 1, -1, 2**31 - 1, -(2**31), OFFSET_MAX, -OFFSET_MAX, -(2**63)])
NUMBERS = EDGES | st.integers(-(2**63), OFFSET_MAX)
HOSTILE = st.builds(origins.LAYOUT.pack,
                    st.sampled_from([1, 1, 1, 0, 2]), st.sampled_from([bytes.fromhex(IDENTITY)] * 3 + [bytes(8)]), NUMBERS, st.sampled_from([0, 0, 0, 1, -1]),
                    st.sampled_from([0, 0, 1, -1, 2, -128]), NUMBERS, NUMBERS, NUMBERS, NUMBERS)


LIKELY = st.builds(Origin, st.just(0), st.integers(0, 9), st.just(5), st.just(0), st.integers(0, 3), st.integers(0, 3), st.integers(0, 4), st.just(IDENTITY))


@given(ANY_STATE, st.lists(HOSTILE | st.binary(max_size=60) | st.builds(encode, LIKELY), min_size=1, max_size=6))
@settings(max_examples=3000, deadline=None)
def test_hostile_bytes_are_pythons(state: RuleState, values: list[bytes]) -> None:
    """Whatever is in a header, C decides it as Python does, or does not decide it."""
    assert_as_python(state, values)


@pytest.mark.parametrize("end", [OFFSET_MAX, OFFSET_MAX - 1])
def test_the_last_offsets_are_decided_alike(end: int) -> None:
    """A hole up to the highest offset that there is, and its closing."""
    def at(offset: int, sequence: int) -> bytes:
        return encode(Origin(0, offset, 1, 0, 1, 1, sequence, IDENTITY))
    assert assert_as_python(RuleState(0, 1, None), [at(end, 3), at(end - 1, 0), at(end, 0), at(end - 1, 0), at(end, 1)])


def test_a_gap_is_seen() -> None:
    """A run follows only what it begins behind, and only when it leaves none out."""
    taken = Made([encode(Origin(0, number, 1, 0, 1, 1, number, IDENTITY)) for number in range(5)])
    assert Run(taken, 0, 5).follows(0)
    assert not Run(taken, 1, 5).follows(0)
    taken.raw.offsets[4] = 7
    assert not Run(taken, 0, 5).follows(0)


@pytest.mark.parametrize(("more", "route", "said"), [
    ({"REO_DEDUPLICATOR_COMPILED": "no"}, ROUTE, "deduplicator.compiled is no"),
    ({"REO_FILTER_FUNCTION": "tests.sieves:every"}, ROUTE, "in Python"),
    ({"REO_PROVENANCE_HEADER": "from"}, ROUTE, "in Python"),
    ({}, Route("orders", "orders", "orders-proxy", "key"), "not one to one"),
    ({}, Route("orders", "all", "all-orders-proxy", SAME, shared=True), "not one to one"),
])
def test_where_python_is_needed_it_is_not_used(more: dict[str, str], route: Route, said: str) -> None:
    """And the reason is said."""
    assert said in (compiled.why_not(load(GOOD | more), [route]) or "")


def test_elsewhere_it_is_used() -> None:
    """It was built: what the other tests here show is shown of the library that the service loads."""
    assert compiled.why_not(load(GOOD), [ROUTE]) is None


def test_an_unknown_version_of_confluent_kafka_is_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its objects may be laid out differently."""
    monkeypatch.setattr(hot_path, "VERSION", "9.9.9")
    hot_path.library.cache_clear()
    try:
        assert "9.9.9" in (compiled.why_not(load(GOOD), [ROUTE]) or "")
    finally:
        hot_path.library.cache_clear()


ODD = [
    Record(b"k", b"v", ()), Record(None, b"v", ()), Record(b"k", None, ()), Record(b"", b"", ()), Record(None, None, (("a", b"1"), ("a", b"2"), ("", b""))),
    Record(b"\0" * 300, b"\xff" * 70_000, (("null", None), ("empty", b""))), Record(b"k", b"v", (("naïve", b"not ASCII"),)),
]
"""Every shape of a record; the last one is Python's."""


class Reader:
    """A consumer with a queue of ours, assigned by hand."""

    def __init__(self, clusters: Clusters) -> None:
        self.consumer = Consumer({"bootstrap.servers": clusters.destination.address, "group.id": "compiled", "auto.offset.reset": "error",
                                  "enable.auto.commit": False, "fetch.wait.max.ms": 50})
        self.queue = Queue(self.consumer)

    def assign(self, *places: tuple[Place, int]) -> None:
        """From these offsets on."""
        self.queue.forward(place for place, _ in places)
        self.consumer.assign([TopicPartition(*place, offset) for place, offset in places])

    def take(self, count: int) -> list[Taken]:
        """Batches with so many messages."""
        found: list[Taken] = []

        def more() -> bool:
            assert self.consumer.poll(0) is None, "a message came out of the consumer"
            self.queue.renew()
            found.append(self.queue.take(100, 0.1))
            return sum(map(len, found)) >= count
        until(more, f"{count} messages are taken")
        return found

    def close(self) -> None:
        """Queue first."""
        self.queue.close()
        self.consumer.close()


@pytest.fixture
def reader(clusters: Clusters) -> Iterator[Reader]:
    """Closed at the end."""
    made = Reader(clusters)
    yield made
    made.close()


def filled(clusters: Clusters, topic: str, partitions: int, records: Sequence[tuple[int, Record]]) -> None:
    """A topic of the destination with these records, each with an origin behind its own headers."""
    clusters.destination.create(topic, partitions)
    offsets = [0] * partitions
    found = []
    for partition, record in records:
        origin = Origin(partition, offsets[partition], 1_700_000_000_000 + offsets[partition], 0, 1, 1, offsets[partition], IDENTITY)
        offsets[partition] += 1
        found.append((partition, Record(record.key, record.value, (*record.headers, (HEADER, encode(origin))), 0)))
    clusters.destination.write(topic, found)


def test_messages_are_what_the_client_hands_out(clusters: Clusters, topic: str, reader: Reader) -> None:
    """For Python, a message of the queue is the client's own, in everything that is asked of one."""
    filled(clusters, topic, 1, [(0, record) for record in ODD])
    reader.assign((Place(topic, 0), 0))
    ours = [message for taken in reader.take(len(ODD)) for _, run in taken.runs() for message in run.messages()]
    plain_reader = Consumer({"bootstrap.servers": clusters.destination.address, "group.id": "plain", "auto.offset.reset": "error"})
    plain_reader.assign([TopicPartition(topic, 0, 0)])
    theirs = plain_reader.consume(len(ODD), 30)
    plain_reader.close()
    assert [content(message) for message in ours] == [content(cast(Any, message)) for message in theirs]
    assert [(m.topic(), m.partition(), m.offset(), m.timestamp(), m.error()) for m in ours] == [
        (m.topic(), m.partition(), m.offset(), m.timestamp(), m.error()) for m in theirs]
    assert all_headers(ours) == all_headers(cast(Any, theirs))


def test_records_are_forwarded_as_python_would_write_them(clusters: Clusters, topic: str, reader: Reader) -> None:
    """From two partitions to a producer, without a Python object for any of them: key, value, headers and timestamp are the source's."""
    records = [(number % 2, ODD[number % (len(ODD) - 1)]) for number in range(500)]
    filled(clusters, topic, 2, records)
    clusters.destination.create(f"{topic}-copy", 2)
    reader.assign((Place(topic, 0), 0), (Place(topic, 1), 0))
    producer = Producer({"bootstrap.servers": clusters.destination.address, "linger.ms": 5})
    states = {0: RuleState(-1, 1, None), 1: RuleState(-1, 1, None)}
    for taken in reader.take(500):
        for place, run in taken.runs():
            decided = run.scan(states[place.partition], IDENTITY)
            assert decided is not None
            states[place.partition] = decided.state
            assert decided.records.forward(producer, Place(f"{topic}-copy", place.partition), 0, len(decided.records)) == len(decided.records)
            assert list(decided.records) == by_partition(run.messages())[place].records(range(len(run)), None)
    assert producer.flush(30) == 0
    copied = clusters.destination.read(f"{topic}-copy")
    for partition in range(2):
        wanted = [record for there, record in records if there == partition]
        assert [(found.key, found.value, found.headers) for found in copied[partition]] == [(record.key, record.value, record.headers) for record in wanted]
        assert [found.timestamp_ms for found in copied[partition]] == [1_700_000_000_000 + number for number in range(len(wanted))]


def test_a_full_producer_says_how_far_it_got(clusters: Clusters, topic: str, reader: Reader) -> None:
    """It takes what it has room for, and goes on from there; what it refuses is an error."""
    filled(clusters, topic, 1, [(0, Record(b"k", b"v", (("a", b"b"),)))] * 50)
    reader.assign((Place(topic, 0), 0))
    silent = Producer({"bootstrap.servers": "127.0.0.1:1", "queue.buffering.max.messages": 20, "message.timeout.ms": 1000, "log_level": 0})
    small = Producer({"bootstrap.servers": "127.0.0.1:1", "message.max.bytes": 1000, "log_level": 0})
    taken = next(found for found in reader.take(50) if len(found))
    (_, run), = taken.runs()
    decided = run.scan(RuleState(-1, 1, None), IDENTITY)
    assert decided is not None
    assert decided.records.forward(silent, Place("t", 0), 0, len(run)) == min(20, len(run))
    assert decided.records.forward(silent, Place("t", 0), 20, len(run)) == 0
    silent.purge()
    silent.flush(10)
    filled(clusters, f"{topic}-large", 1, [(0, Record(b"k", b"v" * 2000, ()))])
    reader.assign((Place(f"{topic}-large", 0), 0))
    large = next(found for found in reader.take(1) if len(found))
    (_, run), = large.runs()
    decided = run.scan(RuleState(-1, 1, None), IDENTITY)
    assert decided is not None
    with pytest.raises(Exception, match="was not taken") as refused:
        decided.records.forward(small, Place("t", 0), 0, 1)
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_after_a_seek_or_a_new_assignment_nothing_old_comes(clusters: Clusters, topic: str, reader: Reader) -> None:
    """What was fetched before is left out by librdkafka (its versions), and the partitions go on coming through our queue."""
    filled(clusters, topic, 2, [(number % 2, Record(b"k", b"%d" % number, ())) for number in range(400)])
    here, there = Place(topic, 0), Place(topic, 1)

    def offsets(count: int) -> dict[Place, list[int]]:
        found: dict[Place, list[int]] = {}
        for taken in reader.take(count):
            for place, run in taken.runs():
                found.setdefault(place, []).extend(range(run.next_offset - len(run), run.next_offset))
        return found
    reader.assign((here, 0), (there, 0))
    assert set(offsets(120)) <= {here, there}
    reader.consumer.seek(TopicPartition(*here, 10))
    reader.consumer.seek(TopicPartition(*there, 150))
    found = offsets(190 + 50)
    assert (found[here], found[there]) == (list(range(10, 200)), list(range(150, 200)))
    reader.consumer.seek(TopicPartition(*here, 0))
    reader.consumer.unassign()
    reader.assign((there, 20))
    assert offsets(180) == {there: list(range(20, 200))}
    reader.assign((here, 190), (there, 199))
    assert offsets(11) == {here: list(range(190, 200)), there: [199]}
    for begin in (100, 50, 199):  # each one replaces the one before it
        reader.assign((here, begin), (there, begin))
        assert offsets(2 * (200 - begin)) == {here: list(range(begin, 200)), there: list(range(begin, 200))}


def test_an_error_of_a_partition_comes_through_the_queue(clusters: Clusters, topic: str, reader: Reader) -> None:
    """A position that is gone: the loop reads its frontier again, as it does without the compiled path."""
    filled(clusters, topic, 1, [(0, Record(b"k", b"v", ()))])
    reader.assign((Place(topic, 0), 50))
    found: list[KafkaError] = []

    def said() -> bool:
        assert reader.consumer.poll(0) is None
        reader.queue.renew()
        error = reader.queue.take(10, 0.1).error
        found.extend([error] if error else [])
        return bool(found)
    until(said, "the error is there")
    assert found[0].code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


@pytest.mark.parametrize("used", ["yes", "no"])
def test_the_service_says_which_one_it_uses(clusters: Clusters, topic: str, start: Start, used: str) -> None:
    """Both copy exactly; the metric tells them apart."""
    clusters.source.create(topic, 2)
    records = spread(range(RECORDS), 2)
    clusters.source.write(topic, records)
    service = start(topic, "deduplicator", deduplicator_compiled=used)
    frontiers_are_made(service, 2)
    until(lambda: service.metric("reo_deduplicator_compiled") == (used == "yes"), "the metric says it")
    feed(clusters, topic, topic, wrapped(clusters, topic, numbered(records)))
    clusters.copied(topic, RECORDS)
    service.stop()
    assert clusters.differences(topic) == []
