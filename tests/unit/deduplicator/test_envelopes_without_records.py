"""What the source has nothing of is said by an envelope without records: what stage two makes of
it. On real brokers: `tests/broker/test_empty_ranges.py`.
"""

from __future__ import annotations

from typing import cast

import pytest
from confluent_kafka import Message

from common.envelope import EnvelopeRecord, Head, parse_head
from common.errors import SourceRecreated
from common.records import Consumed
from deduplicator.round_decisions import RoundDecisions
from deduplicator.rule import RuleState, decide
from tools.envelope_encoder import encode

IDENTITY = "0123456789abcdef"

EPOCH = 5
STATE = RuleState(10, EPOCH)
SAID = Head(IDENTITY, EPOCH, 0, 10, 14)


@pytest.mark.parametrize(
    ("said", "state"),
    [
        pytest.param(SAID, RuleState(14, EPOCH), id="it follows"),
        pytest.param(SAID._replace(after=5), RuleState(14, EPOCH), id="records came meanwhile"),
        pytest.param(SAID._replace(epoch=6), RuleState(14, 6), id="of a newer run"),
        pytest.param(SAID._replace(epoch=4), STATE, id="of a zombie"),
        pytest.param(SAID._replace(after=11), RuleState(10, EPOCH, 11), id="after a gap"),
        pytest.param(SAID._replace(after=9, through=10), STATE, id="it says nothing new"),
        pytest.param(SAID._replace(epoch=6, after=-1, through=-1), RuleState(10, 6), id="install"),
    ],
)
def test_only_what_reaches_the_frontier_moves_it(said: Head, state: RuleState) -> None:
    """It is a statement about the source, which may arrive late, twice, or after others; what
    installs an epoch moves nothing.
    """
    assert decide(STATE, said)[1] == state


def test_a_gap_is_filled_by_a_statement_about_all_of_it() -> None:
    """What begins in its middle says nothing of what is missing before."""
    open_gap = STATE._replace(gap=12)
    assert decide(open_gap, SAID._replace(after=11)) == ("gap", open_gap._replace(gap=12))
    assert decide(open_gap, SAID) == ("accepted", RuleState(14, EPOCH))


def decide_round(*envelopes: tuple[Head, list[int]], identity: str = IDENTITY) -> RoundDecisions:
    """What a round decides of envelopes with records at these source offsets, before anything was
    copied.
    """
    work = RoundDecisions(RuleState(-1, EPOCH), 0)
    for position, (head, offsets) in enumerate(envelopes):
        records = [EnvelopeRecord(offset, 1, 0, b"k", b"%d" % offset) for offset in offsets]
        value = encode(head, records)
        message = Message(topic="t-proxy", partition=0, offset=40 + position, value=value)
        envelope = work.decide(cast(Consumed, message), parse_head(value), identity)
        if envelope is not None:
            work.add_envelope(envelope)
    return work


def make_head(after: int, through: int, has_left_out: bool = False) -> Head:
    """Of the run."""
    return Head(IDENTITY, EPOCH, 0, after, through, has_left_out=has_left_out)


def test_records_around_it_are_decided_as_before() -> None:
    """Between two envelopes the frontier moves over the stretch, and the second one follows."""
    work = decide_round(
        (make_head(-1, 0), [0]),
        (make_head(0, 7), []),
        (make_head(7, 8), [8]),
        (make_head(9, 10), [10]),
    )
    assert (work.rule, work.next_offset) == (RuleState(8, EPOCH, 9), 44)
    assert (work.consumed, work.dropped["gap"]) == (3, 1)
    last = work.find_last()
    assert last is not None
    assert last[1].source_offset == 8


def test_what_a_filter_left_out_is_remembered_until_the_next_record() -> None:
    """Between the last record and the frontier there may be visible records then; behind the next
    accepted one there are none. What is ignored says nothing.
    """
    first, left_out = (make_head(-1, 0), [0]), (make_head(0, 7, has_left_out=True), list[int]())
    last = decide_round(first, left_out).describe_last_record(None)
    assert last is not None
    assert (last.source_offset, last.left_out) == (0, True)
    ignored = (make_head(12, 14, has_left_out=True), list[int]())
    last = decide_round(first, left_out, (make_head(7, 8), [8]), ignored).describe_last_record(None)
    assert last is not None
    assert (last.source_offset, last.left_out) == (8, False)


def test_alone_it_moves_the_position_too() -> None:
    """Nothing else is in the round: the frontier moves, and what is committed is the offset after
    it.
    """
    work = decide_round((make_head(-1, 7), []))
    assert (work.rule.source_offset, work.next_offset, work.find_last()) == (7, 41, None)


def test_of_another_topic_it_is_a_stop() -> None:
    """As one with records is; one that moves nothing says nothing."""
    with pytest.raises(SourceRecreated, match="another"):
        decide_round((make_head(-1, 7), []), identity="another")
    zombie = make_head(-1, 7)._replace(epoch=EPOCH - 1)
    assert decide_round((zombie, []), identity="another").rule == RuleState(-1, EPOCH)
