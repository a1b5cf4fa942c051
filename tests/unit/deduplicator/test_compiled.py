"""The compiled path beside Python's reader of envelopes: the same values are envelopes, and a
producer of librdkafka is handed the same records. (tests/broker/test_forwarding.py has it on a real
broker, tests/e2e/test_sanitized.py under sanitizers.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st

from common import envelope as envelopes
from common.envelope import OFFSET_MAX, EnvelopeInvalid, EnvelopeRecord, Head
from common.errors import RecordRefused
from common.routes import SAME, Route, TopicPartition
from common.settings import load
from deduplicator import compiled_path
from deduplicator.compiled_path import CompiledPathUnavailable, Forwarded, forward, load_library
from tests.harness.envelopes import (
    EXAMPLES,
    IDENTITY,
    OFFSETS,
    Envelope,
    damage_everywhere,
    encode_examples,
    generate_envelopes,
)
from tests.harness.properties import property_test
from tests.unit.common.settings.test_settings import GOOD
from tools.envelope_encoder import encode
from tools.fuzz.collecting_producer import CollectingProducer
from tools.fuzz.compiled_forward import RECORDS_MAX, assert_as_python, read_envelope

ROUTE = Route("orders", "orders", "orders-proxy")
TP = TopicPartition("orders", 0)
HEAD = Head(IDENTITY, 5, 3, 9, 30)


@pytest.fixture(scope="module")
def producer() -> Iterator[CollectingProducer]:
    """One for all examples."""
    opened = CollectingProducer(RECORDS_MAX)
    yield opened
    opened.close()


@given(
    generate_envelopes(records_max=2 * RECORDS_MAX), OFFSETS, OFFSETS, st.sampled_from([0, 1, 7])
)
@property_test(examples=1000)
def test_an_envelope_is_handed_over_as_python_reads_it(
    producer: CollectingProducer, envelope: Envelope, above: int, below: int, zero: int
) -> None:
    """Keys, values, headers and timestamps; from any offset, to any offset, until the queue is
    full, or there is a timestamp that cannot be written.
    """
    value = encode(*envelope)
    assert assert_as_python(producer, value, zero_timestamp_ms=1)
    assert assert_as_python(producer, value, above, below, zero)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_what_is_damaged_is_refused_by_both_or_read_alike(
    producer: CollectingProducer, number: int
) -> None:
    """Cut anywhere, any bit changed."""
    values = list(damage_everywhere(encode_examples()[number]))
    accepted = sum(assert_as_python(producer, value, zero_timestamp_ms=1) for value in values)
    assert 100 < accepted < len(values) - 100


@given(generate_envelopes(), st.data())
@property_test(examples=1500)
def test_any_damage_is_refused_by_both_or_read_alike(
    producer: CollectingProducer, envelope: Envelope, data: st.DataObject
) -> None:
    """Several changes at once, of any length, behind a head of version 2."""
    value = encode(*envelope)
    for _ in range(data.draw(st.integers(1, 3))):
        begin = data.draw(st.integers(0, len(value)))
        end = begin + data.draw(st.integers(0, 4))
        value = value[:begin] + data.draw(st.binary(max_size=4)) + value[end:]
    assert_as_python(producer, b"\x02" + value[1:], zero_timestamp_ms=1)


@given(
    st.lists(
        st.binary(max_size=3)
        | st.text(max_size=2).map(lambda text: text.encode(errors="surrogatepass"))
        | st.sampled_from([b"\xe0\xa0", b"\x80", b"\xed\x9f\xbf", b"\xf4\x8f\xbf\xbf", b"\xc2"])
    ).map(b"".join)
)
@property_test(examples=1500)
def test_names_are_utf_8_for_both(producer: CollectingProducer, name: bytes) -> None:
    """Every form of what is almost UTF-8."""
    records = [EnvelopeRecord(10, 1, 0, None, None, ((b"n" * len(name), None),))]
    value = encode(HEAD, records)
    place = value.rindex(b"n" * len(name)) if name else len(value)
    assert_as_python(producer, value[:place] + name + value[place + len(name) :])


def test_a_full_queue_is_no_error() -> None:
    """The caller goes on above the last record that was accepted, and loses and repeats none."""
    records = [EnvelopeRecord(offset, 1, 0, None, b"v") for offset in range(10, 24)]
    value = encode(HEAD, records)
    producer = Producer({"queue.buffering.max.messages": 8, "log_level": 0})
    first = forward(producer, TP, value, -1, OFFSET_MAX, None)
    assert first == Forwarded(8, 17, is_queue_full=True)
    assert forward(producer, TP, value, 17, OFFSET_MAX, None) == Forwarded(0, 17, True)
    producer.purge()
    producer.flush(10)
    second = forward(producer, TP, value, 17, 22, None)
    assert second == Forwarded(4, 21, is_queue_full=False)
    assert len(producer) == 4
    producer.purge()


def test_a_timestamp_that_cannot_be_written_stops_there() -> None:
    """Partition and offset of the source, and what to set; with it, it is written."""
    value = encode(
        HEAD, [EnvelopeRecord(10, 5, 0, None, b"v"), EnvelopeRecord(12, 0, 0, None, b"v")]
    )
    producer = Producer({"log_level": 0})
    with pytest.raises(
        RecordRefused,
        match=r"record in partition 3 at offset 12 has timestamp 0.*zero_timestamp=one",
    ):
        forward(producer, TP, value, 9, OFFSET_MAX, None)
    assert len(producer) == 1
    assert forward(producer, TP, value, 10, OFFSET_MAX, 1) == Forwarded(1, 12, False)
    producer.purge()


def test_a_damaged_envelope_is_refused_with_pythons_reason() -> None:
    """And nothing of it is handed over, however late the damage is."""
    value = encode(HEAD, [EnvelopeRecord(offset, 5, 0, None, b"v") for offset in range(10, 30)])
    producer = Producer({"log_level": 0})
    for damaged in (value[:-1], value[:-3] + b"\xff" + value[-2:], value + b"\0", b"\x01"):
        with pytest.raises(EnvelopeInvalid) as python:
            read_envelope(damaged)
        with pytest.raises(EnvelopeInvalid) as compiled:
            forward(producer, TP, damaged, -1, OFFSET_MAX, None)
        assert str(compiled.value) == str(python.value)
    assert len(producer) == 0


def test_an_envelope_that_only_c_refuses_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no such one, as far as the tests here know; it would not be written half."""
    monkeypatch.setattr(envelopes, "read_records", lambda *_: [])
    value = encode(HEAD, [EnvelopeRecord(10, 5, 0, None, b"v")])[:-1] + b"\xff"
    with pytest.raises(EnvelopeInvalid, match=r"compiled_path\.c cannot read the envelope"):
        forward(Producer({"log_level": 0}), TP, value, -1, OFFSET_MAX, None)


def test_a_closed_producer_is_not_touched() -> None:
    """It has no client any more."""
    producer = Producer({"log_level": 0})
    producer.close()
    with pytest.raises(RuntimeError, match="closed"):
        forward(producer, TP, encode(HEAD), -1, OFFSET_MAX, None)


@pytest.mark.parametrize(
    ("more", "route", "said"),
    [
        ({"REO_DEDUPLICATOR_COMPILED": "no"}, ROUTE, "deduplicator.compiled is no"),
        ({"REO_FILTER_FUNCTION": "tests.harness.filter_functions:every"}, ROUTE, "in Python"),
        ({"REO_PROVENANCE_HEADER": "from"}, ROUTE, "in Python"),
        ({}, Route("orders", "orders", "orders-proxy", "key"), "not one to one"),
        ({}, Route("orders", "all", "all-orders-proxy", SAME, shared=True), "not one to one"),
    ],
)
def test_where_python_is_needed_it_is_not_used(
    more: dict[str, str], route: Route, said: str
) -> None:
    """And the reason is said."""
    assert said in (compiled_path.find_disabled_reason(load(GOOD | more), [route]) or "")


def test_elsewhere_it_is_used() -> None:
    """It was built: what the other tests here show is shown of the library that the service
    loads.
    """
    assert compiled_path.find_disabled_reason(load(GOOD), [ROUTE]) is None


@pytest.fixture
def unloaded() -> Iterator[None]:
    """The library is loaded anew, now and after the test."""
    load_library.cache_clear()
    yield
    load_library.cache_clear()


@pytest.mark.usefixtures("unloaded")
def test_an_unknown_version_of_librdkafka_is_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its objects may be laid out differently."""
    monkeypatch.setattr(compiled_path, "VERSION", ("2.16.1", "9.9.9"))
    assert "9.9.9" in (compiled_path.find_disabled_reason(load(GOOD), [ROUTE]) or "")


def build_nothing(_: Path) -> None:
    """No compiler."""


def build_twice(folder: Path) -> None:
    """For two versions of Python, as `pip install` does."""
    for name in ("_compiled_path.so", "_compiled_path.cpython-311.so"):
        (folder / name).write_bytes(b"")


def build_damaged(folder: Path) -> None:
    """What no linker has written."""
    (folder / "_compiled_path.so").write_bytes(b"no library")


@pytest.mark.usefixtures("unloaded")
@pytest.mark.parametrize(
    ("build", "said"),
    [
        (build_nothing, "it was not built: a C compiler was missing"),
        (build_twice, "more than once: _compiled_path.cpython-311.so, _compiled_path.so; delete"),
        (build_damaged, "_compiled_path.so"),
    ],
)
def test_a_library_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: Callable[[Path], None], said: str
) -> None:
    """`reo check` prints it, and Python does the work."""
    build(tmp_path)
    monkeypatch.setattr(compiled_path, "FOLDER", tmp_path)
    with pytest.raises(CompiledPathUnavailable, match=said):
        load_library()


@pytest.mark.usefixtures("unloaded")
def test_a_library_for_another_version_of_the_envelope_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Built before an update of the checkout."""
    monkeypatch.setattr(envelopes, "VERSION", 3)
    with pytest.raises(CompiledPathUnavailable, match=r"another version of compiled_path\.c"):
        load_library()
