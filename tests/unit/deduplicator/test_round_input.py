"""What a round consumes, and decides record by record: where it ends, and what is left to the next
one. What is written has each source record once, whatever is cut where.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from common import clock
from common.partition_mapping import SourceRecord
from common.records import Consumed
from common.routes import TopicPartition
from deduplicator import round_input
from deduplicator.partition import Partition
from deduplicator.record_filter import FunctionFilter
from deduplicator.unwrap import Record
from deduplicator.user_call_timeout import CallLimit
from tests.harness.intermediate_records import (
    HERE,
    build_envelope,
    build_envelopes,
    build_message,
    unwrap_offsets,
)
from tests.harness.stage_two import FIRST_FRONTIER, ROUTE, Copy, use_compiled_path

FEW = {"REO_DEDUPLICATOR_TRANSACTION_RECORDS": "3"}


def test_a_transaction_ends_in_the_middle_of_an_envelope() -> None:
    """Where transactions have to be small: the frontier is the last record that is written, and the
    position stays at the envelope until its last record is written. Each is counted once.
    """
    copy = Copy(build_envelopes(7, 9), settings=FEW)
    found = []
    for _ in range(4):
        copy.run_rounds()
        found.append((copy.frontier.source_offset, copy.position))
    assert found == [(2, 0), (5, 0), (8, 1), (9, 2)]
    assert [len(transaction) for transaction in copy.producers.committed] == [3, 3, 3, 1]
    assert copy.producers.list_records() == unwrap_offsets(*range(10))
    assert copy.count_records() == {"in": 10, "out": 10}


def test_the_rest_of_an_envelope_is_read_again_after_a_failure() -> None:
    """From the frontier on: the records that are committed count as duplicates this time."""
    copy = Copy(build_envelopes(7), settings=FEW)
    copy.run_rounds()
    copy.fail_round()
    copy.run_rounds(8)
    assert copy.producers.list_records() == unwrap_offsets(*range(8))
    assert copy.frontier.source_offset == 7
    assert copy.count_records() == {"in": 11, "out": 8, "duplicate": 3}


def test_a_smaller_transaction_is_written_record_by_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failure a transaction has half as many records, and ends in the middle of an
    envelope; after enough short ones envelopes are written as they are again. The last one of the
    small ones is continued, and its records are not counted twice.
    """
    use_compiled_path(monkeypatch)
    copy = Copy(build_envelopes(*range(9, 1010, 10)))
    copy.loop.transaction_limits.on_failed(8)
    sizes = []
    for _ in range(21):
        copy.run_rounds()
        sizes.append(len(copy.producers.committed[-1]))
    assert sizes[:8] == [4] * 8
    assert sizes[8:16] == [8] * 8
    assert copy.loop.round_input.continued is not None
    copy.loop.transaction_limits.records = copy.loop.transaction_limits.records_max
    copy.run_rounds()
    assert copy.producers.list_records() == unwrap_offsets(*range(1010))
    assert copy.position == 101
    assert copy.count_records() == {"in": 1010, "out": 1010}


class SlowFunction:
    """A user's filter; each call takes its time on a clock of the test's own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        self.seconds = seconds
        self.now_s = 100.0
        monkeypatch.setattr(clock, "monotonic", lambda: self.now_s)
        self.seen: list[bytes | None] = []

    def __call__(self, record: SourceRecord) -> bool:
        """Leaves every tenth record out."""
        self.now_s += self.seconds
        self.seen.append(record.key)
        return not (record.key or b"").endswith(b"9")

    def build_filter(self) -> FunctionFilter:
        """Without a limit of its own."""
        return FunctionFilter({"slow": self}, False, CallLimit())


@pytest.mark.parametrize(
    ("seconds", "at_once"), [(0.0, 1000), (0.005, 1000), (0.05, 120), (1.0, 20)]
)
def test_a_round_ends_when_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch, seconds: float, at_once: int
) -> None:
    """In the middle of an envelope where a user's function is slow, after a few records at least,
    with a sign of life after each few: no record is asked about twice, and none is lost.
    """
    function = SlowFunction(monkeypatch, seconds)
    copy = Copy(build_envelopes(999), record_filter=function.build_filter())
    beats: list[int] = []
    monkeypatch.setattr(copy.loop.liveness, "beat", lambda: beats.append(len(function.seen)))
    copy.run_rounds()
    assert len(function.seen) == at_once
    assert set(range(0, at_once, round_input.FEW_RECORDS)) <= set(beats)
    assert copy.frontier.source_offset == at_once - 1
    assert copy.position == (1 if at_once == 1000 else 0)
    copy.run_rounds(1000 // at_once)
    assert function.seen == [b"%d" % offset for offset in range(1000)]
    expected = unwrap_offsets(*(offset for offset in range(1000) if offset % 10 != 9))
    assert copy.producers.list_records() == expected
    assert copy.count_records() == {"in": 1000, "out": 900, "filtered": 100}


def test_what_is_consumed_and_not_decided_stays_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round polls, and with each poll an envelope can come, while a slow function sees less
    than one in a round: when they are too many, the client fetches them again. One is consumed at a
    time meanwhile.
    """
    monkeypatch.setattr(round_input, "UNDECIDED_MAX", 12)
    function = SlowFunction(monkeypatch, 1.0)
    copy = Copy(build_envelopes(*range(39, 4000, 40)), record_filter=function.build_filter())
    undecided = []
    for _ in range(100):
        copy.run_rounds()
        undecided.append(len(copy.loop.round_input.undecided))
    assert max(undecided) <= 13
    assert copy.reader.fetched_again > 1
    assert set(copy.reader.consumed) <= {1, 8}
    assert copy.reader.consumed.count(8) == 1 + copy.reader.fetched_again
    assert function.seen == [b"%d" % offset for offset in range(2000)]


def test_large_envelopes_are_consumed_when_they_can_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A transaction is full with two of them: no more are held than were consumed at once."""
    use_compiled_path(monkeypatch)
    few = {"REO_DEDUPLICATOR_TRANSACTION_RECORDS": "20"}
    copy = Copy(build_envelopes(*range(9, 1000, 10)), settings=few)
    undecided = []
    for _ in range(50):
        copy.run_rounds()
        undecided.append(len(copy.loop.round_input.undecided))
    assert max(undecided) <= 8
    assert {len(transaction) for transaction in copy.producers.committed} == {20}
    assert copy.producers.list_records() == unwrap_offsets(*range(1000))
    assert copy.reader.fetched_again == 0


def test_no_transaction_has_more_records_than_it_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """An envelope that does not fit is left to the next one, or cut if it is larger than any."""
    use_compiled_path(monkeypatch)
    few = {"REO_DEDUPLICATOR_TRANSACTION_RECORDS": "20"}
    copy = Copy(build_envelopes(18, 38, 60, 61), settings=few)
    copy.run_rounds(5)
    assert [len(transaction) for transaction in copy.producers.committed] == [19, 20, 20, 3]
    assert copy.producers.list_records() == unwrap_offsets(*range(62))
    assert copy.count_records() == {"in": 62, "out": 62}


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_transaction_ends_when_its_envelopes_are_large(
    monkeypatch: pytest.MonkeyPatch, is_compiled: bool
) -> None:
    """They are in memory until it is committed. One that is larger than all may be is alone."""
    if is_compiled:
        use_compiled_path(monkeypatch)
    envelopes = build_envelopes(9, 19, 29, 39, 49)
    size = len(envelopes[0].value() or b"")
    for bytes_max, sizes in ((2 * size, [20, 20, 10]), (1, [10] * 5)):
        monkeypatch.setattr(round_input, "ENVELOPE_BYTES_MAX", bytes_max)
        copy = Copy(envelopes)
        copy.run_rounds(6)
        assert [len(transaction) for transaction in copy.producers.committed] == sizes


def test_a_round_has_a_limited_number_of_messages_without_records() -> None:
    """Each of them counts as one record, so that a round ends."""
    old = build_message(b"x", 0, None, [("__origin", b"x")])
    empty = [build_envelope(1, 0, 5, []), *(build_envelope(offset, 5, 5) for offset in range(2, 7))]
    copy = Copy([old, *empty], replace(FIRST_FRONTIER, source_offset=0), FEW)
    positions = []
    for _ in range(3):
        copy.run_rounds()
        positions.append(copy.position)
    assert positions == [3, 6, 7]


def test_what_is_decided_is_forgotten_with_its_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """The poll in which the group revokes it can come in the middle of a round."""
    copy = Copy(build_envelopes(5))
    consume = copy.reader.consume

    def revoke(*arguments: Any) -> list[Consumed]:
        if len(copy.reader.consumed) == 1:
            copy.partitions.on_assigned([HERE])
        return consume(*arguments)

    monkeypatch.setattr(copy.reader, "consume", revoke)
    copy.run_rounds()
    assert copy.producers.commits == []
    copy.run_rounds()
    assert copy.producers.list_records() == unwrap_offsets(*range(6))


def test_a_mapping_sees_each_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the route is not one to one, also if the compiled path can be used."""
    use_compiled_path(monkeypatch)
    destinations = [TopicPartition("t", partition) for partition in range(2)]

    def choose(records: Sequence[Record]) -> list[tuple[TopicPartition, Sequence[Record]]]:
        return [(tp, records[tp.partition :: 2]) for tp in destinations]

    copy = Copy(build_envelopes(3), partitioner=choose)
    copy.run_rounds()
    (written,) = copy.producers.committed
    assert written == [
        (destinations[offset % 2], *unwrap_offsets(offset)) for offset in (0, 2, 1, 3)
    ]
    assert (copy.frontier.sent, copy.frontier.last_written) == (-1, None)


def test_what_is_not_decided_is_forgotten_with_its_partition() -> None:
    """A revoked partition's envelopes are its next owner's, also when the partition comes back: it
    is fetched again from the position that is committed by then.
    """
    other = TopicPartition(HERE.topic, 1)
    copy = Copy([*build_envelopes(5), build_envelope(9, -1, 5, tp=other)], settings=FEW)
    copy.run_rounds()
    assert [message.partition() for _, message in copy.loop.round_input.undecided] == [0, 1]
    copy.partitions.on_assigned([HERE])
    copy.run_rounds()
    assert not copy.loop.round_input.undecided
    assert len(copy.producers.commits) == 1, "nothing of them was written"
    copy.run_rounds(2)
    assert copy.producers.list_records() == unwrap_offsets(*range(6))


def test_only_a_revoked_partition_is_forgotten() -> None:
    """What was consumed of others is decided."""
    other = TopicPartition(HERE.topic, 1)
    copy = Copy([*build_envelopes(5), build_envelope(9, -1, 5, tp=other)], settings=FEW)
    copy.partitions.start([Partition(other, ROUTE, 9, FIRST_FRONTIER)])
    copy.run_rounds()
    copy.partitions.on_revoked([other])
    copy.run_rounds()
    assert copy.producers.list_records() == unwrap_offsets(*range(6))
