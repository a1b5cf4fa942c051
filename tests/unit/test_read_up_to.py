"""What the source has nothing of is written down: what stage two makes of that. On real brokers:
`tests/broker/test_read_up_to_markers.py`.
"""

from __future__ import annotations

from typing import cast

import pytest
from confluent_kafka import Message

from common import origin
from common.errors import ForeignRecord, SourceRecreated
from common.frontier import Hole, Link, RuleState
from common.origin import Origin
from common.read_up_to_record import HEADER, ReadUpTo, encode
from common.records import Consumed
from common.routes import TopicPartition
from deduplicator.read_up_to_advance import advance_frontier
from deduplicator.round_decisions import RoundDecisions
from deduplicator.unwrap import split_by_partition

STATE = RuleState(10, 5, Link(10, 7, 3))
SAID = ReadUpTo(0, 14, 10, 5, "1d1d1d1d1d1d1d1d")
RECORDS = 10


@pytest.mark.parametrize(
    ("said", "frontier"),
    [
        (SAID, 14),
        (ReadUpTo(0, 14, 10, 6, "1d1d1d1d1d1d1d1d"), 14),
        (ReadUpTo(0, 14, 10, 4, "1d1d1d1d1d1d1d1d"), 10),
        (ReadUpTo(0, 14, 9, 5, "1d1d1d1d1d1d1d1d"), 10),
        (ReadUpTo(0, 14, 11, 5, "1d1d1d1d1d1d1d1d"), 10),
        (ReadUpTo(0, 10, 10, 5, "1d1d1d1d1d1d1d1d"), 10),
        (ReadUpTo(0, 9, 10, 5, "1d1d1d1d1d1d1d1d"), 10),
    ],
    ids=[
        "follows",
        "newer epoch",
        "zombie",
        "records came meanwhile",
        "of a frontier ahead",
        "empty",
        "backwards",
    ],
)
def test_only_what_follows_the_frontier_moves_it(said: ReadUpTo, frontier: int) -> None:
    """The frontier that it follows has to be this one, and its run no older than the one that is
    believed. Epoch and link stay.
    """
    assert advance_frontier(STATE, said) == STATE._replace(frontier=frontier)


def test_nothing_is_moved_over_while_a_hole_is_open() -> None:
    """What is missing there is visible: neither this run nor a later one can have read that there
    is nothing, unless the state is not what it followed.
    """
    holed = STATE._replace(hole=Hole(12, 20))
    assert [
        advance_frontier(holed, said) for said in (SAID, ReadUpTo(0, 14, 10, 6, "1d1d1d1d1d1d1d1d"))
    ] == [holed, holed]


def record(number: int, sequence: int) -> Consumed:
    """Of the intermediate topic, with a source offset and a sequence of one batch."""
    return message(
        number, ("__origin", origin.encode(Origin(0, number, 1, 0, 5, 9, sequence, "1d" * 8)))
    )


def message(offset: int, last_header: tuple[str, bytes | None]) -> Consumed:
    """As the client hands it out."""
    return cast(
        Consumed,
        Message(
            topic="t-proxy",
            partition=0,
            offset=offset,
            key=b"k",
            value=b"v",
            timestamp=(1, 1),
            headers=[last_header],
        ),
    )


def decide_round(*messages: Consumed, identity: str = "1d1d1d1d1d1d1d1d") -> RoundDecisions:
    """What a round decides of them, before anything was copied."""
    work = RoundDecisions(RuleState(-1, 5, None), 0, None)
    work.add(split_by_partition(messages)[TopicPartition("t-proxy", 0)], identity, None)
    return work


def test_records_around_it_are_decided_as_before() -> None:
    """Between two records of a batch the frontier moves over the gap, and the second record still
    follows the first.
    """
    said = message(1, (HEADER, encode(ReadUpTo(0, 7, 0, 5, "1d1d1d1d1d1d1d1d"))))
    work = decide_round(record(0, 0), said, record(8, 1), record(9, 3))
    assert work.source_offsets == [0, 8]
    assert (work.rule, work.holes, work.next_offset) == (
        RuleState(8, 5, Link(8, 9, 1), Hole(9, 9)),
        1,
        10,
    )
    assert (work.consumed, work.read_up_to) == (4, 1)
    assert work.last is not None
    assert work.last[0].describe_record(work.last[1]).source_offset == 8


def test_what_a_filter_left_out_is_remembered_until_the_next_record() -> None:
    """Between the last record and the frontier there may be visible records then; behind the next
    accepted one there are none. What is ignored says nothing.
    """
    left_out = message(1, (HEADER, encode(ReadUpTo(0, 7, 0, 5, "1d1d1d1d1d1d1d1d", left_out=True))))
    ignored = message(2, (HEADER, encode(ReadUpTo(0, 9, 3, 5, "1d1d1d1d1d1d1d1d", left_out=True))))
    assert decide_round(record(0, 0), left_out).left_out
    assert not decide_round(record(0, 0), left_out, record(8, 1), ignored).left_out


def test_alone_it_moves_the_position_too() -> None:
    """Nothing else is in the batch: the frontier moves, and what is committed is the offset after
    it.
    """
    work = decide_round(message(41, (HEADER, encode(ReadUpTo(0, 7, -1, 5, "1d1d1d1d1d1d1d1d")))))
    assert (work.rule.frontier, work.next_offset, work.records, work.last) == (7, 42, [], None)


def test_of_another_topic_it_is_a_stop() -> None:
    """As a record is; one that moves nothing says nothing."""
    said = ReadUpTo(0, 7, -1, 5, "another")
    with pytest.raises(SourceRecreated, match="another"):
        decide_round(message(0, (HEADER, encode(said))))
    zombie = ReadUpTo(0, 7, -1, 4, "another")
    assert decide_round(message(0, (HEADER, encode(zombie)))).rule == RuleState(-1, 5, None)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"{}",
        encode(ReadUpTo(1, 7, -1, 5, "i")),
        b'{"p":0,"o":7,"f":-2,"e":5,"i":"i"}',
        b'{"p":0,"o":true,"f":1,"e":5,"i":"i"}',
    ],
)
def test_what_stage_one_would_not_write_is_foreign(value: bytes | None) -> None:
    """Whoever can write to the intermediate topic must not move a frontier by accident."""
    with pytest.raises(ForeignRecord, match="at offset 0"):
        decide_round(message(0, (HEADER, value)))
