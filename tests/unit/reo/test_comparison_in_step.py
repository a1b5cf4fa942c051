"""The comparison itself, without brokers: lists of any size are compared as their records are, and
compacted topics by the newest record of each key.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from hypothesis import given
from hypothesis import strategies as st

from common.routes import TopicPartition
from reo.compare import compacted, comparison
from reo.compare.comparison import Comparison
from tests.harness.properties import property_test
from tests.unit.reo.test_alignment import Message


def batches(messages: Sequence[Message], sizes: Sequence[int]) -> Generator[list[Message]]:
    """The messages in lists of these sizes, again and again."""
    begin, number = 0, 0
    while begin < len(messages):
        size = sizes[number % len(sizes)]
        yield list(messages[begin : begin + size])
        begin, number = begin + size, number + 1


def messages(letters: str, gap: int) -> list[Message]:
    """Letters as records, offsets `gap` apart."""
    return [Message(letter, gap * number) for number, letter in enumerate(letters)]


SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=3)


@property_test(examples=300)
@given(st.text("ab", max_size=12), st.text("ab", max_size=12), SIZES, SIZES)
def test_lists_of_any_size_are_compared_as_records_are(
    left: str, right: str, left_sizes: list[int], right_sizes: list[int]
) -> None:
    """The first place where the two differ, and whether they do, is that of the letters, however
    the readers cut them into lists.
    """
    result = Comparison(TopicPartition("t", 0), -2, -2)
    comparison.compare_in_step(
        batches(messages(left, 3), left_sizes),
        batches(messages(right, 2), right_sizes),
        result,
        0,
        lambda _: None,
    )
    equal = next(
        (
            place
            for place, (one, other) in enumerate(zip(left, right, strict=False))
            if one != other
        ),
        min(len(left), len(right)),
    )
    assert (result.equal, bool(result.difference)) == (equal, left != right)
    assert result.source_offset == (3 * equal if left != right and equal < len(left) else None)
    assert result.destination_offset == (
        2 * equal if left != right and equal < len(right) else None
    )
    assert (result.source_next, result.destination_next) == (
        (3 * equal - 2, 2 * equal - 1) if equal else (-2, -2)
    )


def test_places_are_compared_where_a_row_has_one() -> None:
    """The same records in rows of other source offsets: a difference for a table, none for a
    topic.
    """
    for places_too, equal in ((False, 3), (True, 1)):
        result = Comparison(TopicPartition("t", 0), -2, -2)
        comparison.compare_in_step(
            batches(messages("aba", 3), [2]),
            batches(messages("aba", 2), [1]),
            result,
            0,
            lambda _: None,
            places_too,
        )
        assert (result.equal, bool(result.difference)) == (equal, places_too)
    assert result.difference == "the record of source offset 3 is in the row of 2"


class Keyed(Message):
    """A message whose letter is its key; a capital is a tombstone of it."""

    def key(self) -> bytes:
        """The letter."""
        return self.content.lower().encode()

    def value(self) -> bytes | None:  # type: ignore[override]
        """Where it is, unless it is a tombstone."""
        return None if self.content.isupper() else b"%d" % self.time_ms


def build_keyed(letters: list[tuple[str, int]]) -> list[Keyed]:
    """(letter, value) each."""
    return [Keyed(letter, place, value) for place, (letter, value) in enumerate(letters)]


KEYED = st.lists(st.tuples(st.sampled_from("abcdABCD"), st.integers(1, 3)), max_size=12)


@property_test(examples=300)
@given(KEYED, KEYED, st.integers(1, 4))
def test_the_newest_of_each_key_with_any_memory(
    left: list[tuple[str, int]], right: list[tuple[str, int]], keys_max: int
) -> None:
    """Equal exactly when the last value of each key is, tombstones being none; in however small
    parts the keys are taken.
    """

    def naive(letters: list[tuple[str, int]]) -> dict[str, int]:
        last = {letter.lower(): (letter, value) for letter, value in letters}
        return {key: value for key, (letter, value) in last.items() if letter.islower()}

    result = Comparison(TopicPartition("t", 0), -2, -2)
    compacted.compare_newest(
        lambda: batches(build_keyed(left), [3]),
        lambda: batches(build_keyed(right), [2]),
        result,
        0,
        keys_max,
    )
    assert bool(result.difference) == (naive(left) != naive(right))
    if not result.difference:
        assert result.equal == len(naive(left))
