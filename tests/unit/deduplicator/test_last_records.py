"""The two records that a frontier describes: the last one that was accepted, with which the source
is compared, and the last one that was written, with which the destination is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.frontier import KEPT, LastRecord
from common.partition_mapping import SourceRecord
from common.records import Consumed, compute_checksum
from deduplicator.record_filter import FunctionFilter
from deduplicator.user_call_timeout import CallLimit
from tests.harness.intermediate_records import (
    HERE,
    build_envelope,
    build_source_record,
    build_surplus,
    unwrap_offsets,
)
from tests.harness.properties import property_test
from tests.harness.stage_two import Copy, use_compiled_path

SMALL = {"REO_DEDUPLICATOR_TRANSACTION_RECORDS": "2"}


class Stretch(NamedTuple):
    """An envelope, in which every source offset of `offsets` has a record."""

    after: int
    through: int
    offsets: tuple[int, ...]
    has_left_out: bool


@st.composite
def generate_stretches(draw: st.DrawFn) -> list[Stretch]:
    """Mostly one after the other; some begin earlier, some have no record."""
    stretches: list[Stretch] = []
    frontier = -1
    for _ in range(draw(st.integers(1, 6))):
        after = max(-1, frontier - draw(st.sampled_from([0, 0, 0, 1, 3])))
        through = after + draw(st.integers(0, 4))
        offsets = (
            draw(st.sets(st.sampled_from(range(after + 1, through + 1))))
            if (through > after)
            else set()
        )
        stretches.append(Stretch(after, through, tuple(sorted(offsets)), draw(st.booleans())))
        frontier = max(frontier, through)
    return stretches


def build_messages(stretches: Iterable[Stretch]) -> list[Consumed]:
    """The envelopes."""
    return [
        build_envelope(offset, one.after, one.through, one.offsets, has_left_out=one.has_left_out)
        for offset, one in enumerate(stretches)
    ]


def describe(source_offset: int, left_out: bool) -> LastRecord:
    """As a frontier does."""
    return LastRecord(source_offset, compute_written(source_offset).removesuffix(KEPT), left_out)


def compute_written(source_offset: int) -> str:
    """As a frontier has the last record that was written."""
    record = build_source_record(source_offset)
    checksum = compute_checksum(record.key, record.value, [], record.timestamp_ms)
    return checksum + KEPT


class Expected(NamedTuple):
    """Of a copy of some envelopes."""

    visible: list[int]
    last_record: LastRecord | None
    last_written: str | None


def expect(stretches: Iterable[Stretch], until: int) -> Expected:
    """With the frontier at this offset, the naive way: offset by offset."""
    frontier, visible, left_out = -1, list[int](), False
    for one in stretches:
        for offset in range(frontier + 1, min(one.through, until) + 1):
            if offset in one.offsets:
                visible.append(offset)
                left_out = False
            else:
                left_out |= one.has_left_out
        frontier = max(frontier, one.through)
    if not visible:
        return Expected(visible, None, None)
    return Expected(visible, describe(visible[-1], left_out), compute_written(visible[-1]))


@pytest.fixture(scope="module")
def compiled() -> Iterator[None]:
    """For all examples of a test."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        use_compiled_path(monkeypatch)
        yield


@pytest.mark.parametrize("small", [False, True], ids=["one round", "two records in a round"])
@given(generate_stretches())
@property_test(examples=300)
def test_they_are_the_last_ones(small: bool, stretches: list[Stretch]) -> None:
    """However the envelopes are cut; and whether records can be left out between the last one and
    the frontier.
    """
    check_last_records(Copy(build_messages(stretches), settings=SMALL if small else {}), stretches)


@pytest.mark.usefixtures("compiled")
@given(generate_stretches())
@property_test(examples=300)
def test_they_are_the_same_with_the_compiled_path(stretches: list[Stretch]) -> None:
    """Which reads only the last record in Python."""
    check_last_records(Copy(build_messages(stretches)), stretches)


def check_last_records(copy: Copy, stretches: list[Stretch]) -> None:
    """After each commit, until everything is copied."""
    copy.run_rounds(40)
    expected = expect(stretches, copy.frontier.source_offset)
    assert copy.producers.list_records() == unwrap_offsets(*expected.visible)
    assert copy.frontier.source_offset == max(-1, *(one.through for one in stretches))
    for commit in copy.producers.commits:
        _, frontier = commit[HERE]
        _, last_record, last_written = expect(stretches, frontier.source_offset)
        assert (frontier.last_record, frontier.last_written) == (last_record, last_written)


def test_a_round_without_records_leaves_them_as_they_are() -> None:
    """Records that `filter.sql` leaves out are noted, once and for all until the next record."""
    copy = Copy(
        [
            build_envelope(0, -1, 2),
            build_envelope(1, 2, 5, [], has_left_out=True),
            build_envelope(2, 5, 7, []),
            build_envelope(3, 7, 8),
        ]
    )
    found = []
    for end in range(1, 5):
        copy.reader.messages, messages = copy.reader.messages[:end], copy.reader.messages
        copy.run_rounds()
        copy.reader.messages = messages
        found.append(copy.frontier.last_record)
    assert found == [describe(2, False), describe(2, True), describe(2, True), describe(8, False)]


def test_a_first_record_is_none_that_was_left_out() -> None:
    """Before the first record there is none to compare the source with."""
    copy = Copy([build_envelope(0, -1, 5, [], has_left_out=True)])
    copy.run_rounds()
    assert copy.frontier.last_record is None
    assert copy.frontier.source_offset == 5


@pytest.mark.parametrize("kept", [b"0123456", b"012", b""], ids=["all", "some", "none"])
def test_a_record_that_the_function_leaves_out_is_the_last_one_of_the_source(kept: bytes) -> None:
    """And not of the destination."""

    def keep(record: SourceRecord) -> bool:
        return (record.key or b"") in kept if kept else False

    record_filter = FunctionFilter({"keep": keep}, False, CallLimit())
    copy = Copy([build_envelope(0, -1, 6)], record_filter=record_filter)
    copy.run_rounds()
    assert copy.producers.list_records() == unwrap_offsets(*range(len(kept)))
    assert copy.frontier.last_record == describe(6, False)
    assert copy.frontier.last_written == (compute_written(len(kept) - 1) if kept else None)


@pytest.mark.parametrize("torn", [1, 3, 4, 6])
def test_the_last_one_can_be_a_torn_transactions(
    monkeypatch: pytest.MonkeyPatch, torn: int
) -> None:
    """Some records are at the destination already: they are not written again, and counted as what
    the destination has. The compiled path is not used before they are found.
    """
    use_compiled_path(monkeypatch)
    surplus = build_surplus(unwrap_offsets(*range(torn)), 20)
    copy = Copy([build_envelope(0, -1, 3), build_envelope(1, 3, 7)], surplus=surplus)
    copy.reader.messages, messages = copy.reader.messages[:1], copy.reader.messages
    copy.run_rounds()
    assert copy.producers.list_records() == unwrap_offsets(*range(torn, 4))
    assert (copy.frontier.source_offset, copy.frontier.last_record) == (3, describe(3, False))
    assert copy.frontier.last_written == compute_written(3)
    assert copy.frontier.destination_known == 20 + min(torn, 4) - 1
    assert (copy.frontier.sent, copy.frontier.is_known_written) == (max(0, 4 - torn), True)
    assert (copy.partitions.assigned[HERE].surplus is None) == (torn <= 4)
    copy.reader.messages = messages
    copy.run_rounds()
    assert copy.producers.list_records() == unwrap_offsets(*range(torn, 8))
    assert copy.frontier.last_written == compute_written(7)
    assert copy.frontier.destination_known + copy.frontier.sent == 20 + torn - 1 + 8 - torn
