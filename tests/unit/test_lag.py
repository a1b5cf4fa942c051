"""LagReporter in seconds is the smaller of two bounds, each of which alone would be wrong
(`common.lag_gauges`).
"""

from __future__ import annotations

import pytest

from common.lag_gauges import LagReporter
from common.routes import TopicPartition

HERE = TopicPartition("orders", 3)


class Clock:
    """Stands where it is put, in seconds."""

    now = 1_700_000_000.0

    def __call__(self) -> float:
        """Unix time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """One for each test."""
    return Clock()


def ms(seconds_ago: float) -> int:
    """A record's timestamp."""
    return int((Clock.now - seconds_ago) * 1000)


def test_nothing_waits(clock: Clock) -> None:
    """However old the last record is."""
    assert LagReporter("a stage", clock).report(HERE, 0, ms(86_400)) == 0


def test_a_quiet_topic_does_not_lag_by_its_silence(clock: Clock) -> None:
    """One record comes after a day: it has waited since nothing was seen to wait, not since the
    record before it.
    """
    lag = LagReporter("a stage", clock)
    lag.report(HERE, 0, ms(86_400))
    clock.now += 3
    assert lag.report(HERE, 1, ms(86_400)) == 3


def test_a_process_that_has_just_started_knows_from_the_last_record(clock: Clock) -> None:
    """It has never seen the partition without lag: the last record through bounds it."""
    assert LagReporter("a stage", clock).report(HERE, 1000, ms(90)) == pytest.approx(90)


def test_under_load_the_last_record_is_the_closer_bound(clock: Clock) -> None:
    """Something always waits; the stage is not further behind than its last record is old."""
    lag = LagReporter("a stage", clock)
    lag.report(HERE, 0, ms(0))
    clock.now += 600
    assert lag.report(HERE, 50, ms(-599.5)) == pytest.approx(0.5)


def test_nothing_is_claimed_without_a_bound(clock: Clock) -> None:
    """No record has come through and the partition was never clear."""
    assert LagReporter("a stage", clock).report(HERE, 5, None) is None


def test_a_timestamp_of_the_future_is_no_negative_lag(clock: Clock) -> None:
    """Producers' clocks differ."""
    assert LagReporter("a stage", clock).report(HERE, 5, ms(-60)) == 0
