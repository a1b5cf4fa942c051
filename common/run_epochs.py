"""Epochs: the number of a run, by which the rule recognises the newer run. The upper bits are the
clock, in ms; the lower bits are random.

A run trusts the frontier that it has read, and writes from there on. Its epoch is above every
committed epoch (by a millisecond, if that one is ahead of the clock). Its random bits distinguish
it from any other run, even from one that another process plans at the same moment from the same
frontiers. Of two runs with the same frontiers, the later one can have the lower epoch; if records
of both are in the topic, one of the runs is superseded.

When a frontier is set by anything but the rule, no run that has not read it may follow: such a run
would skip the records in between. An epoch above the clock is not enough for that. The clocks of
two machines differ. A run's epoch can be ahead of both clocks, when it has read an epoch that was.
And a process can freeze between the choice of an epoch and the moment when its commit can be read,
while a run is planned from the previous commit. So such a frontier gets an epoch one hour ahead of
the clock, and two milliseconds above all known epochs. A run that has read such an epoch is ahead
of the clock too, by one millisecond more: a frontier that is set later is above it.
"""

from __future__ import annotations

from collections.abc import Iterable

RANDOM_BITS = 20
"""The clock needs 41 bits, and an epoch has to stay below 2^63: enough until 2248."""
AHEAD_MS = 3_600_000
"""No commit takes longer than this, and no two clocks differ by more."""


def create_run_epoch(clock_ms: int, read: Iterable[int], random_bits: int) -> int:
    """The epoch of a new run that has read frontiers of these epochs; `random_bits` is random and
    below 2^RANDOM_BITS.
    """
    return max(clock_ms, get_time_ms(max(read, default=0)) + 1) << RANDOM_BITS | random_bits


def create_higher_epoch(clock_ms: int, known: Iterable[int]) -> int:
    """The epoch of a frontier that the rule has not set: above these epochs, and above those of
    runs that have read these but not this one.
    """
    return max(clock_ms + AHEAD_MS, get_time_ms(max(known, default=0)) + 2) << RANDOM_BITS


def can_exceed(read: Iterable[int], epoch: int) -> bool:
    """Whether a run that has read these epochs can be above this epoch, its clock aside."""
    return get_time_ms(max(read, default=0)) + 1 >= get_time_ms(epoch)


def get_time_ms(epoch: int) -> int:
    """The time in the epoch, in ms; it can be ahead of the clock."""
    return epoch >> RANDOM_BITS
