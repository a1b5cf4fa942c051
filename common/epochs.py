"""Epochs: the number of a run, by which the rule tells the newer one. Its upper bits are the clock, in ms; the lower ones are random.

A run believes the frontier that it has read, and writes from there on. Its epoch is above every committed one (by a millisecond, where that one is ahead of
the clock), and its random bits tell it from any other run, also from one that another process plans at the same moment from the same frontiers.

What sets a frontier other than the rule must not be followed by a run that has not read it: such a run would leave out what lies between. To be above the
clock is not enough for that. The clocks of two machines differ; a run's epoch can be ahead of both, when it has read one that was; and between the choice of
an epoch and the moment when the commit can be read a process can stand still, while a run is planned from what was committed before. So it takes one an hour
ahead of the clock, and two milliseconds above all that is known. A run that has read such an epoch is ahead of the clock too, by one millisecond more:
what is set after it is above it.
"""

from __future__ import annotations

from collections.abc import Iterable

RANDOM_BITS = 20
"""The clock needs 41 bits, and an epoch has to stay below 2^63: enough until 2248."""
AHEAD_MS = 3_600_000
"""For longer than this no commit is on its way, and by more no two clocks differ."""


def of_run(clock_ms: int, read: Iterable[int], random_bits: int) -> int:
    """Of a new run that has read frontiers of these epochs; `random_bits` is below 2^RANDOM_BITS and told apart by nothing but chance."""
    return max(clock_ms, time_ms(max(read, default=0)) + 1) << RANDOM_BITS | random_bits


def raised(clock_ms: int, known: Iterable[int]) -> int:
    """Of a frontier that the rule has not set: above these epochs, and above those of the runs that have read them and not this one."""
    return max(clock_ms + AHEAD_MS, time_ms(max(known, default=0)) + 2) << RANDOM_BITS


def can_exceed(read: Iterable[int], epoch: int) -> bool:
    """Whether a run can be above this epoch that has read these, and whose clock is not the reason."""
    return time_ms(max(read, default=0)) + 1 >= time_ms(epoch)


def time_ms(epoch: int) -> int:
    """The clock's time in it; it can be ahead of the clock."""
    return epoch >> RANDOM_BITS
