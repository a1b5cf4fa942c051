"""Where a stretch of elements stands in a stream: every place, each element of the stream looked at once, memory for the stretch only.

`reo.alignment` feeds it hashes of records. Among equal records a stretch stands in many places; finding all of them is the point.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Search:
    """Knuth, Morris and Pratt: whether a pattern ends at the element fed last, each element looked at once."""

    def __init__(self, pattern: Sequence[int]) -> None:
        self.pattern = list(pattern)
        self.falls = [0, 0]
        """How much of the pattern still fits when its first n elements did and the next does not."""
        self.state = 0
        for element in self.pattern[1:]:
            self.falls.append(self._next(self.falls[-1], element))

    def _next(self, state: int, element: int) -> int:
        while state and (state == len(self.pattern) or self.pattern[state] != element):
            state = self.falls[state]
        return state + (self.pattern[state] == element)

    def feed(self, element: int) -> bool:
        """Whether the pattern ends here."""
        self.state = self._next(self.state, element)
        return self.state == len(self.pattern)


def ends_of(source: Iterable[int], stretch: Sequence[int], begun_within: bool, most: int) -> list[int]:
    """After how many source elements the stretch ends, ascending, at most `most`. With `begun_within` the source may begin in the middle of it."""
    search = Search(stretch)
    head: list[int] = []
    found: list[int] = []
    for number, element in enumerate(source, 1):
        if begun_within and number < len(stretch):
            head.append(element)
        if search.feed(element) and len(found) < most:
            found.append(number)
    return (_overlaps(head, stretch, most) + found)[:most]


def _overlaps(head: Sequence[int], stretch: Sequence[int], most: int) -> list[int]:
    """Every length at which the beginning of `head` is the end of the stretch, the longest first where there are more than `most`."""
    if not head:
        return []
    search = Search(head)
    for element in stretch:
        search.feed(element)
    found: list[int] = []
    length = search.state
    while length and len(found) < most:
        found.append(length)
        length = search.falls[length]
    return sorted(found)
