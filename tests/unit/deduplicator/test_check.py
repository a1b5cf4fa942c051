"""The check at the start: surplus records of the destination are a torn transaction's, or a foreign
writer's, never guessed; a partition that ends too early has lost records.
"""

from __future__ import annotations

import tracemalloc
from collections import deque
from typing import cast
from unittest.mock import Mock

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message

from common.errors import DestinationTruncated, ForeignWriter, TopicsUnfit
from common.frontier import Frontier
from common.records import Consumed
from common.routes import TopicPartition
from deduplicator.frontiers import frontier_check
from deduplicator.frontiers.frontier_check import Surplus
from deduplicator.unwrap import Record, compute_record_checksum
from tests.harness.intermediate_records import build_message


def record(number: int) -> Record:
    """A record that differs from every other number's."""
    return b"key", str(number).encode(), [("header", None)], 1_700_000_000_000 + number


def change_field(field: int, value: object) -> Record:
    """The record with one field changed."""
    return cast(Record, (*record(1)[:field], value, *record(1)[field + 1 :]))


def surplus(*numbers: int) -> Surplus:
    """These records are at the destination from offset 10 on, two apart, as markers between
    transactions leave them.
    """
    return Surplus(
        TopicPartition("orders", 0),
        9,
        deque(
            (10 + 2 * position, compute_record_checksum(record(number)))
            for position, number in enumerate(numbers)
        ),
    )


def test_a_torn_transaction_is_recognised() -> None:
    """The next accepted records are exactly what is there: covered, not written again, the known
    offset moves to the last.
    """
    there = surplus(1, 2)
    assert there.skip_matching([record(1), record(2)]) == 2
    assert (there.known_offset, len(there.records)) == (12, 0)


def test_what_follows_a_torn_transaction_is_written() -> None:
    """Three are accepted, two are there: one is left to write."""
    there = surplus(1, 2)
    assert there.skip_matching([record(1), record(2), record(3)]) == 2


def test_a_torn_transaction_is_recognised_over_several_batches() -> None:
    """One round accepts less than is there: the rest stays surplus for the next round."""
    there = surplus(1, 2, 3)
    assert there.skip_matching([record(1)]) == 1
    assert (there.known_offset, len(there.records)) == (10, 2)
    assert there.skip_matching([record(2), record(3), record(4)]) == 2
    assert there.known_offset == 14


def test_nothing_accepted_covers_nothing() -> None:
    """A round of duplicates leaves the surplus as it is."""
    there = surplus(1)
    assert there.skip_matching([]) == 0
    assert (there.known_offset, len(there.records)) == (9, 1)


@pytest.mark.parametrize(
    "other",
    [
        change_field(0, None),
        change_field(1, b"other"),
        change_field(1, None),
        change_field(2, []),
        change_field(2, [("header", b"")]),
        change_field(3, 5),
    ],
)
def test_any_difference_is_a_foreign_writer(other: Record) -> None:
    """Key, value, headers and timestamp all count; null is not empty. The message says where."""
    with pytest.raises(ForeignWriter, match=r"orders-0 at offset 10 .*Stop the other writer"):
        surplus(1).skip_matching([other])


def test_a_foreign_record_behind_a_torn_transaction_is_found() -> None:
    """The first is ours, the second is not: nothing may be written behind it."""
    with pytest.raises(ForeignWriter, match="offset 12"):
        surplus(1, 99).skip_matching([record(1), record(2)])


def test_records_in_another_order_are_a_foreign_writer() -> None:
    """A torn transaction has the records in the order in which they are accepted."""
    with pytest.raises(ForeignWriter):
        surplus(2, 1).skip_matching([record(1), record(2)])


def test_large_foreign_records_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to 200,000 are looked at before they are called a foreign writer's: they are named, and
    not kept.
    """
    tp = TopicPartition("orders", 0)
    monkeypatch.setattr(frontier_check, "SURPLUS_MAX", 300)
    monkeypatch.setattr(
        frontier_check,
        "read_visible",
        lambda *_: (build_message(bytes(100_000), offset, tp=tp) for offset in range(5, 1000)),
    )
    frontiers = {tp: Frontier(9, 1, "0123456789abcdef", 1, "id", 4, 0)}
    tracemalloc.start()
    try:
        with pytest.raises(ForeignWriter, match="more than 300 records from offset 5 on"):
            frontier_check.check_destination(Mock(), frontiers, {tp: 5}, {tp: 1000}, frozenset())
        assert tracemalloc.get_traced_memory()[1] < 10 * 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("sent", [0, 1, 2])
def test_a_timestamp_that_a_broker_has_replaced_is_no_lost_record(
    monkeypatch: pytest.MonkeyPatch, sent: int
) -> None:
    """At the known offset, after it, and beyond the frontier: what is true is said."""
    tp, stamped = TopicPartition("orders", 0), (TIMESTAMP_LOG_APPEND_TIME, 1_700_000_000_000)
    there: list[Consumed] = [
        cast(
            Consumed,
            Message(topic=tp.topic, partition=0, offset=5, value=b"value", timestamp=stamped),
        )
    ]
    monkeypatch.setattr(frontier_check, "read_visible", lambda *_: iter(there))
    frontiers = {tp: Frontier(9, 1, "0123456789abcdef", 1, "id", 5 - sent, sent, None, None, "w")}
    with pytest.raises(TopicsUnfit, match=r"orders-0 at offset 5 .*LogAppendTime .* a new topic"):
        frontier_check.check_destination(Mock(), frontiers, {tp: 0}, {tp: 9}, frozenset())


@pytest.mark.parametrize(
    ("sent", "end", "is_lost"),
    [(0, 5, False), (0, 4, True), (3, 8, False), (3, 7, True), (3, 4, True)],
)
def test_a_partition_that_ends_before_what_was_written(sent: int, end: int, is_lost: bool) -> None:
    """Neither retention nor compaction moves a partition's end back: record 4 and those that were
    sent after it need an offset each.
    """
    tp = TopicPartition("orders", 0)
    frontiers = {tp: Frontier(9, 1, "0123456789abcdef", 1, "id", 4, sent)}
    if is_lost:
        with pytest.raises(DestinationTruncated, match=f"ends at {end}"):
            frontier_check._check_ends(frontiers, {tp: end})
    else:
        frontier_check._check_ends(frontiers, {tp: end})
