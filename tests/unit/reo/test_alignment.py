"""Where a copy ends, told by the data: never a wrong answer, whatever repeats and whatever was
deleted from the beginning of either side.

Records are letters here, so that they repeat; source offsets have gaps, so that counting them would
be noticed.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import CopyDiffers, FrontierLost
from reo.compare import alignment
from reo.compare.alignment import AlignmentInput, find_last_copied
from reo.compare.sequence_search import find_ends
from tests.harness.properties import property_test

LETTERS = st.text("abc", max_size=30)
GAP = 3


@dataclass
class Message:
    """What a reader hands out, as far as it is looked at."""

    content: str
    place: int
    time_ms: int = 1_700_000_000_000
    more: tuple[tuple[str, bytes | None], ...] = ()

    def key(self) -> bytes | None:
        """None is a null key."""
        return None

    def value(self) -> bytes:
        """The letter."""
        return self.content.encode()

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """None is the same as none."""
        return list(self.more) or None

    def timestamp(self) -> tuple[int, int]:
        """Kind, and ms."""
        return 1, self.time_ms

    def offset(self) -> int:
        """Where it was read."""
        return self.place


def sides(
    source: Sequence[Message],
    destination: Sequence[Message],
    source_whole: bool = True,
    destination_whole: bool = True,
    from_beginning: bool = True,
    tail_max: int = 100,
    zero_timestamp_ms: int = 0,
) -> AlignmentInput:
    """Readings of two lists."""

    def yield_messages(messages: Sequence[Message]) -> Generator[Message]:
        yield from messages

    return AlignmentInput(
        "copy-0",
        lambda: yield_messages(source),
        lambda: yield_messages(destination),
        source_whole,
        destination_whole,
        from_beginning,
        zero_timestamp_ms,
        tail_max,
    )


def records(letters: str, gap: int = 1) -> list[Message]:
    """One record per letter."""
    return [Message(letter, number * gap) for number, letter in enumerate(letters)]


@given(LETTERS, st.integers(0, 30))
@property_test(examples=1000)
def test_in_step_from_the_beginning_repeated_records_are_no_question(
    letters: str, copied: int
) -> None:
    """Both sides whole: the frontier is the last copied record's, however often records are
    repeated.
    """
    source = records(letters, GAP)
    found = find_last_copied(sides(source, records(letters[:copied])))
    copied = min(copied, len(letters))
    assert (
        (found.source_offset, found.compared) == ((copied - 1) * GAP, copied)
        if found
        else copied == 0
    )


@given(
    st.text("abc", min_size=1, max_size=30),
    st.tuples(*[st.integers(0, 29)] * 4),
    st.integers(1, 30),
)
@property_test(examples=3000)
def test_what_is_found_is_always_the_truth(
    letters: str, numbers: tuple[int, int, int, int], tail_max: int
) -> None:
    """A copy begun anywhere, the beginning of either side deleted: an answer is the right one, or
    there is none. Equal records abound.

    The frontier's record is still at the source here; where it might not be, DISTINCT_MIN stands
    before an answer (tested below).
    """
    begun = numbers[0] % len(letters)
    copy = letters[begun : begun + 1 + numbers[1]]
    frontier = begun + len(copy) - 1
    source_gone, destination_gone = numbers[2] % (frontier + 1), numbers[3] % len(copy)
    source, destination = records(letters, GAP)[source_gone:], records(copy)[destination_gone:]
    alignment.DISTINCT_MIN, before = 1, alignment.DISTINCT_MIN
    try:
        found = find_last_copied(
            sides(
                source,
                destination,
                source_gone == 0,
                destination_gone == 0,
                from_beginning=False,
                tail_max=tail_max,
            )
        )
    except FrontierLost:
        places = [
            end
            for end in range(1, len(source) + 1)
            if is_possible_end(source, destination, end, source_gone == 0)
        ]
        tails = find_ends(
            [hash(record.content) for record in source],
            [hash(record.content) for record in destination[-tail_max:]],
            source_gone > 0,
            99,
        )
        assert len(places) > 1 or len(tails) > alignment.CANDIDATES_MAX
        return
    finally:
        alignment.DISTINCT_MIN = before
    assert found is not None
    assert (found.source_offset, found.destination_offset) == (frontier * GAP, len(copy) - 1)


def is_possible_end(
    source: Sequence[Message], destination: Sequence[Message], end: int, source_whole: bool
) -> bool:
    """The naive oracle: whether the destination could end after `end` source records."""
    both = min(end, len(destination))
    return (not source_whole or end >= len(destination)) and all(
        source[end - 1 - back].content == destination[len(destination) - 1 - back].content
        for back in range(both)
    )


@given(st.text("ab", max_size=40), st.text("ab", min_size=1, max_size=12), st.booleans())
@property_test(examples=2000)
def test_every_match_of_a_sequence_is_found(stream: str, tail: str, starts_within: bool) -> None:
    """Against the naive search; with `starts_within` also where the stream begins in the middle of
    the tail.
    """
    naive = [
        end
        for end in range(1, len(stream) + 1)
        if (end >= len(tail) and stream[end - len(tail) : end] == tail)
        or (starts_within and end < len(tail) and tail.endswith(stream[:end]))
    ]
    assert (
        find_ends(
            [ord(letter) for letter in stream], [ord(letter) for letter in tail], starts_within, 100
        )
        == naive
    )


@pytest.mark.parametrize(
    "other", [Message("x", 2), Message("c", 2, 5), Message("c", 2, more=(("a", None),))]
)
def test_a_foreign_record_is_shown(other: Message) -> None:
    """Value, timestamp or headers differ: CopyDiffers says where, whether the walk is anchored or
    searched.
    """
    source = records("abcdef")
    destination = [*records("ab"), other]
    for from_beginning in (True, False):
        with pytest.raises(CopyDiffers, match="destination offset 2"):
            find_last_copied(sides(source, destination, from_beginning=from_beginning))


def test_a_foreign_record_before_the_compared_records_is_shown() -> None:
    """The last records stand at the source in one place, but one before them is another: the walk
    over the whole finds it.
    """
    with pytest.raises(CopyDiffers, match="destination offset 2"):
        find_last_copied(
            sides(records("abcdefgh"), records("abxdef"), from_beginning=False, tail_max=3)
        )


def test_more_records_than_the_source_has() -> None:
    """A destination that goes on where the source ends, or where the source is empty, is not its
    copy.
    """
    with pytest.raises(
        CopyDiffers,
        match="the source ends after 2 equal records, the destination goes on at offset 2",
    ):
        find_last_copied(sides(records("ab"), records("abc")))
    with pytest.raises(CopyDiffers, match="the source ends after 0"):
        find_last_copied(sides([], records("a")))
    with pytest.raises(CopyDiffers, match="only 3 records up to there, and the destination has 5"):
        find_last_copied(sides(records("cde"), records("abcde"), from_beginning=False, tail_max=2))


def test_many_places_are_refused_before_they_are_walked() -> None:
    """The tail stands in eight places, the whole in the first and in the last of them: looking at
    the first few only would find one.
    """
    with pytest.raises(FrontierLost, match="more than 5 places"):
        find_last_copied(
            sides(records("ba" + "xa" * 6 + "ba"), records("ba"), from_beginning=False, tail_max=1)
        )


def test_few_different_records_prove_nothing_where_the_source_lost_its_beginning() -> None:
    """What was deleted could have been the same: nine different records are refused, ten are
    believed.
    """
    for letters, believed in (("abcdefghi", False), ("abcdefghij", True)):
        source, destination = records(letters + "xyz", GAP), records("vw" + letters)
        if believed:
            assert find_last_copied(sides(source, destination, source_whole=False)) == (
                9 * GAP,
                11,
                10,
                12,
            )
        else:
            with pytest.raises(FrontierLost, match="only 9 different records"):
                find_last_copied(sides(source, destination, source_whole=False))


def test_an_empty_destination_is_nothing_copied_only_if_nothing_was_deleted() -> None:
    """Retention that took everything leaves no answer."""
    assert find_last_copied(sides(records("abc"), [])) is None
    assert find_last_copied(sides(records("abc"), [], from_beginning=False)) is None
    with pytest.raises(FrontierLost, match="retention"):
        find_last_copied(sides(records("abc"), [], destination_whole=False))


def test_a_replaced_zero_timestamp_is_the_same_record() -> None:
    """With destination.zero_timestamp=one the copy of 1970-01-01T00:00:00.000Z has 1 ms; without
    it, it is a difference.
    """
    source, destination = [Message("a", 7, 0)], [Message("a", 0, 1)]
    assert find_last_copied(sides(source, destination, zero_timestamp_ms=1)) == (7, 0, 1, 1)
    with pytest.raises(CopyDiffers, match="timestamp"):
        find_last_copied(sides(source, destination))
