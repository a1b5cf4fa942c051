"""Finds a sequence of elements in a stream: every match, each element of the stream read once,
memory for the sequence only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

Element = TypeVar("Element")


class SequenceSearch(Generic[Element]):
    """The algorithm of Knuth, Morris and Pratt: how much of a pattern ends at the last element."""

    def __init__(self, pattern: Sequence[Element]) -> None:
        self.pattern = list(pattern)
        self.fallbacks = [0, 0]
        """How many elements of the pattern still match when its first n elements matched and the
        next one does not.
        """
        self.matched = 0
        for element in self.pattern[1:]:
            self.fallbacks.append(self._find_next(self.fallbacks[-1], element))

    def _find_next(self, matched: int, element: Element) -> int:
        while matched and (matched == len(self.pattern) or self.pattern[matched] != element):
            matched = self.fallbacks[matched]
        return matched + (self.pattern[matched] == element)

    def feed(self, element: Element) -> bool:
        """Take the next element; returns whether the pattern ends with it."""
        self.matched = self._find_next(self.matched, element)
        return self.matched == len(self.pattern)


def find_ends(
    source: Iterable[int], sequence: Sequence[int], starts_within: bool, ends_max: int
) -> list[int]:
    """After how many source elements the sequence ends, ascending, at most `ends_max`. With
    `starts_within` the source may begin inside the sequence.
    """
    search = SequenceSearch(sequence)
    head: list[int] = []
    ends: list[int] = []
    for number, element in enumerate(source, 1):
        if starts_within and number < len(sequence):
            head.append(element)
        if search.feed(element) and len(ends) < ends_max:
            ends.append(number)
    return (_find_overlaps(head, sequence, ends_max) + ends)[:ends_max]


def _find_overlaps(head: Sequence[int], sequence: Sequence[int], ends_max: int) -> list[int]:
    """Each length for which the beginning of `head` is the end of the sequence; the longest ones
    when there are more than `ends_max`.
    """
    if not head:
        return []
    search = SequenceSearch(head)
    for element in sequence:
        search.feed(element)
    lengths: list[int] = []
    length = search.matched
    while length and len(lengths) < ends_max:
        lengths.append(length)
        length = search.fallbacks[length]
    return sorted(lengths)
