"""Epochs: the number of a run, by which the rule tells the newer one. They are taken from the clock, in ms, and are never used twice.

A run believes the frontier that it has read, and writes from there on. When a frontier is replaced by one that is not further on (its destination was deleted
and made again, `reo recover` found another place), a run that has read the one before must not be believed: it would leave out what lies between. To be
above the clock is not enough for that. Between the choice of an epoch and the moment when the commit can be read a process can stand still, and a run that
is planned meanwhile reads what was committed before and takes a later epoch. So what replaces a frontier takes one an hour ahead of the clock.

A run's epoch is above those that it has read, and above that of every run before it, also of one that left no trace. So it has to grow with both, what was
read and the clock. While what was read is ahead of the clock, the clock therefore still counts, for a hundredth.
"""

from __future__ import annotations

from collections.abc import Iterable

AHEAD_MS = 3_600_000
"""For longer than this no commit is on its way."""
SLOWER = 100
"""Runs that begin so many ms after one another have epochs of their own, whatever is ahead of the clock; planning one takes longer."""


def of_run(clock_ms: int, read: Iterable[int]) -> int:
    """Of a new run that has read frontiers of these epochs, none of them more than AHEAD_MS ahead of the clock."""
    highest = max(read, default=0)
    return max(clock_ms, highest + 1 + max(0, clock_ms + AHEAD_MS - highest) // SLOWER)


def raised(clock_ms: int, written: Iterable[int], replaces: bool) -> int:
    """Of a frontier that the rule has not set: above these epochs, so that only a run begun after it is believed; `replaces` another one."""
    return max([clock_ms + (AHEAD_MS if replaces else 0), *(epoch + 1 for epoch in written)])
