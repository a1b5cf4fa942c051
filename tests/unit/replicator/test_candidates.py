"""Source candidates without clusters: which one is selected, which one is lost, and whether two
tails of a partition are equal.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import clock, source_pool
from common.errors import SourceRecreated, SourceRefused, SourceTruncated
from common.frontier import Frontier, LastRecord
from common.kafka.topics import Topic
from common.routes import TopicPartition
from common.settings import load
from common.source_pool import SourcePool, SourceSnapshot, evaluate, find_first_within_threshold
from replicator.runs.source_selection import Behind, check_offsets, inspect_single_source
from replicator.runs.tail_comparison import TailRecord, compare_tail
from tests.harness.properties import property_test

PLACE = TopicPartition("t", 0)
GOOD = {
    "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1,b:1; c:1",
    "REO_SOURCE_TOPIC": "orders",
    "REO_DESTINATION_BOOTSTRAP_SERVERS": "d:1",
    "REO_SOURCE_MODE": "failover",
}


@pytest.mark.parametrize(
    ("watermarks", "order", "expected"),
    [
        ({0: 100, 1: 100}, [0, 1, 2], 0),
        ({0: 90, 1: 100}, [0, 1, 2], 0),
        ({0: 89, 1: 100}, [0, 1, 2], 1),
        ({1: 89, 2: 100}, [0, 1, 2], 2),
        ({0: 100, 2: 100}, [1, 2, 0], 2),
        ({}, [0, 1, 2], None),
    ],
)
def test_the_first_that_does_not_lag_is_taken(
    watermarks: dict[int, int], order: list[int], expected: int | None
) -> None:
    """In order, and never one that is further behind than the threshold, of 10 here; only the
    current one is preferred to others.
    """
    assert find_first_within_threshold(order, watermarks, 10) == expected


@given(
    st.dictionaries(st.integers(0, 5), st.integers(0, 50), min_size=1),
    st.permutations(range(6)),
    st.integers(0, 20),
)
@property_test(examples=1000)
def test_there_always_is_one_that_does_not_lag(
    watermarks: dict[int, int], order: list[int], threshold: int
) -> None:
    """The furthest is behind nobody: with candidates there is a choice, and it is near the
    furthest.
    """
    chosen = find_first_within_threshold(order, watermarks, threshold)
    assert chosen is not None
    assert max(watermarks.values()) - watermarks[chosen] <= threshold


@pytest.mark.parametrize(
    ("watermarks", "expected"),
    [
        ({0: 100, 1: 100}, None),
        ({0: 100, 1: 110}, None),
        ({0: 100, 1: 111}, "lagging"),
        ({0: 111, 1: 100}, None),
        ({0: 100, 1: None}, None),
        ({0: None, 1: 100}, "lost"),
        ({0: None, 1: None}, None),
        ({0: None}, None),
    ],
)
def test_a_run_is_ended_only_when_another_candidate_answers(
    watermarks: dict[int, int | None], expected: str | None
) -> None:
    """Where nobody answers the run goes on and waits, as with one cluster."""
    assert evaluate(watermarks, 0, 10) == expected


def test_the_first_candidate_is_chosen_by_chance_when_that_is_asked_for() -> None:
    """Any of them can be the first with `source.randomize_initial`; without it, it always is the
    first that is named.
    """

    def firsts(wanted: str) -> set[int]:
        settings = load(
            GOOD
            | {
                "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1;b:1;c:1",
                "REO_SOURCE_RANDOMIZE_INITIAL": wanted,
            }
        )
        return {SourcePool(settings).initial for _ in range(300)}

    assert firsts("true") == {0, 1, 2}
    assert firsts("false") == {0}


def test_a_process_that_is_started_again_knows_the_candidate_and_counts_on(tmp_path: Path) -> None:
    """`source.max_failovers` is the service's: a restart of stage one between two changes does not
    allow one more. Without a memory nothing is known.
    """
    settings = load(
        GOOD | {"REO_SOURCE_BOOTSTRAP_SERVERS": "a:1;b:1;c:1", "REO_SOURCE_MAX_FAILOVERS": "1"}
    )

    def create_pool(memory: Path | None = tmp_path / "source") -> SourcePool:
        return SourcePool(settings, memory)

    first = create_pool()
    first.switch_to(0)
    first.switch_to(1)
    again = create_pool()
    assert (again.current, again.failovers) == (1, 1)
    again.switch_to(1)
    with pytest.raises(SourceRefused, match=r"source\.max_failovers=1 does not allow"):
        again.switch_to(2)
    assert (create_pool(None).current, create_pool(None).failovers) == (None, 0)


@pytest.mark.parametrize("is_recreated", [True, False])
def test_a_source_that_is_recreated_between_two_questions_is_called_that(
    monkeypatch: pytest.MonkeyPatch, is_recreated: bool
) -> None:
    """Described before, asked for its offsets after: it ends before what was copied, and it is
    another topic. One that is still the same has lost records.
    """
    settings = load(GOOD | {"REO_SOURCE_BOOTSTRAP_SERVERS": "a:1", "REO_SOURCE_MODE": "single"})
    route, before = settings.build_routes()[0], Topic("orders", "one", 1, "cluster")
    sources = {route: replace(before, topic_id="two") if is_recreated else before}
    tp = route.get_source(0)
    monkeypatch.setattr(
        source_pool,
        "take_snapshot",
        lambda _, known=None: SourceSnapshot(settings, known or sources, {tp: 0}, {tp: 3}, {tp: 3}),
    )
    frontiers = {
        TopicPartition(route.intermediate_topic, 0): Frontier(9, 1, before.identity, 1, "", -1, 0)
    }
    with pytest.raises(SourceRecreated if is_recreated else SourceTruncated):
        inspect_single_source(settings, {route: before}, frontiers)


@pytest.mark.parametrize(("stable_end", "is_behind"), [(9, True), (10, False)])
def test_a_candidate_whose_transaction_is_open_below_what_was_copied_is_behind(
    stable_end: int, is_behind: bool
) -> None:
    """Another one had its end already: this one is waited for, and not refused as if it had lost
    records.
    """
    settings = load(GOOD)
    route, topic = settings.build_routes()[0], Topic("orders", "one", 1, "cluster")
    tp = route.get_source(0)
    snapshot = SourceSnapshot(settings, {route: topic}, {tp: 0}, {tp: 20}, {tp: stable_end})
    frontiers = {
        TopicPartition(route.intermediate_topic, 0): Frontier(
            9, 1, topic.identity, 1, "", -1, 0, last_record=LastRecord(9, "checksum")
        )
    }
    with (
        pytest.raises(Behind, match="open transaction there at offset 9")
        if is_behind
        else contextlib.nullcontext()
    ):
        check_offsets(snapshot, frontiers)


def test_lag_ends_a_run_at_most_once_in_the_longest_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates that overtake one another do not end run after run; one that is lost is another
    matter. What was refused is no measure.
    """
    settings = load(GOOD | {"REO_SOURCE_BACKOFF_MIN_MS": "100", "REO_SOURCE_BACKOFF_MAX_MS": "300"})
    now_s = 100.0
    monkeypatch.setattr(clock, "monotonic", lambda: now_s)
    pool = SourcePool(settings)
    pool.current = 0
    assert pool.evaluate_round({0: 0, 1: 5000}) == "lagging"
    assert pool.evaluate_round({0: 0, 1: 5000}) is None
    assert pool.evaluate_round({0: None, 1: 5000}) == "lost"
    now_s += 0.4
    assert pool.evaluate_round({0: 0, 1: 5000}) == "lagging"
    pool.candidates[1].reason = SourceRefused("another topic")
    now_s += 0.4
    assert pool.evaluate_round({0: 0, 1: 5000}) is None
    assert pool.evaluate_round({0: None, 1: 5000}) is None


def make_tail_records(*offsets: int) -> list[TailRecord]:
    """Records whose content is their offset."""
    return [TailRecord(offset, (b"%d" % offset, b"", [], offset)) for offset in offsets]


def shift_offsets(records: list[TailRecord], by: int) -> list[TailRecord]:
    """The same records at other offsets."""
    return [TailRecord(record.offset + by, record.content) for record in records]


def test_two_ends_are_walked_backwards_as_far_as_both_go() -> None:
    """Offsets at the destination are others, one side may have more, and gaps are legal on either
    side.
    """
    assert (
        compare_tail(
            PLACE, shift_offsets(make_tail_records(3, 5, 6, 9), 100), make_tail_records(5, 6, 9), 9
        )
        == 3
    )
    assert compare_tail(PLACE, make_tail_records(9), make_tail_records(3, 5, 6, 9), 9) == 1


@pytest.mark.parametrize(
    ("there", "why"),
    [
        ([], "no record at offset 9"),
        (make_tail_records(3, 5, 6), "no record at offset 9"),
        (make_tail_records(5, 6, 9, 10), "no record at offset 9"),
        (shift_offsets(make_tail_records(3, 5, 6, 9), -1), "no record at offset 9"),
        (make_tail_records(3, 5, 7, 9), "at offset 7 is not the one that was copied"),
        (make_tail_records(4, 5, 6, 9), "at offset 4 is not the one that was copied"),
        (make_tail_records(3, 6, 9), "at offset 3 is not the one that was copied"),
        (
            [*make_tail_records(3, 5, 6), TailRecord(9, (b"9", b"", [("h", b"")], 9))],
            "at offset 9 is not the one that was copied",
        ),
        (
            [*make_tail_records(3, 5, 6), TailRecord(9, (b"9", b"", [], 8))],
            "at offset 9 is not the one that was copied",
        ),
    ],
)
def test_a_difference_is_refused(there: list[TailRecord], why: str) -> None:
    """Another record, a missing one, the right ones at other offsets, other headers, another
    timestamp.
    """
    with pytest.raises(SourceRefused, match=why):
        compare_tail(PLACE, make_tail_records(3, 5, 6, 9), there, 9)
