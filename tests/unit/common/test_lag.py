"""LagReporter in seconds is the smaller of two bounds, each of which alone would be wrong
(`common.lag_gauges`).
"""

from __future__ import annotations

import itertools

import pytest

from common import clock
from common.lag_gauges import ENDS_PER_LAG, LagReporter
from common.routes import TopicPartition
from tests.unit.common.conftest import Clock

HERE = TopicPartition("orders", 3)


def ms(seconds_ago: float) -> int:
    """A record's timestamp."""
    return int((Clock.now - seconds_ago) * 1000)


def test_nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """However old the last record is: exactly 0, although the clock goes on meanwhile."""
    monkeypatch.setattr(clock, "time", itertools.count(Clock.now).__next__)
    assert LagReporter("a stage").report(HERE, 0, ms(86_400)) == 0


def test_a_quiet_topic_does_not_lag_by_its_silence(still: Clock) -> None:
    """One record comes after a day: it has waited since nothing was seen to wait, not since the
    record before it.
    """
    lag = LagReporter("a stage")
    lag.report(HERE, 0, ms(86_400))
    still.now += 3
    assert lag.report(HERE, 1, ms(86_400)) == 3


def test_a_process_that_has_just_started_knows_from_the_last_record(still: Clock) -> None:
    """It has never seen the partition without lag: the last record through bounds it."""
    assert LagReporter("a stage").report(HERE, 1000, ms(90)) == pytest.approx(90)


def test_under_load_the_last_record_is_the_closer_bound(still: Clock) -> None:
    """Something always waits; the stage is not further behind than its last record is old."""
    lag = LagReporter("a stage")
    lag.report(HERE, 0, ms(0))
    still.now += 600
    assert lag.report(HERE, 50, ms(-599.5)) == pytest.approx(0.5)


def test_nothing_is_claimed_without_a_bound(still: Clock) -> None:
    """No record has come through and the partition was never clear."""
    assert LagReporter("a stage").report(HERE, 5, None) is None


def test_a_timestamp_of_the_future_is_no_negative_lag(still: Clock) -> None:
    """Producers' clocks differ."""
    assert LagReporter("a stage").report(HERE, 5, ms(-60)) == 0


def report_offsets(lag: LagReporter, next_offset: int, end: int) -> float | None:
    """Of a stage that knows no timestamps, and copies every offset."""
    return lag.report_offsets(HERE, next_offset, end, end - next_offset)


def test_without_timestamps_the_ends_that_were_seen_tell(still: Clock) -> None:
    """The source gets a record each second and the copy is three behind: what waits was written
    after the source was seen to end where the copy is.
    """
    lag = LagReporter("a stage")
    report_offsets(lag, 100, 100)
    for second in range(1, 300):
        still.now += 1
        seconds = report_offsets(lag, max(100, 97 + second), 100 + second)
        assert seconds == min(second, 3)
    assert len(lag.partitions[HERE].ends) == 4


def test_a_source_that_stands_still_does_not_hide_how_long_it_waits(still: Clock) -> None:
    """One record comes after a day and waits for ten seconds, while the source ends behind it."""
    lag = LagReporter("a stage")
    for _ in range(3):
        assert report_offsets(lag, 10, 10) == 0
        still.now += 40_000
    report_offsets(lag, 10, 10)
    for second in range(1, 11):
        still.now += 1
        assert report_offsets(lag, 10, 11) == second
    assert report_offsets(lag, 11, 11) == 0


def test_before_it_has_caught_up_it_counts_from_its_start(still: Clock) -> None:
    """What waited before that is not known."""
    lag = LagReporter("a stage")
    for second in range(60):
        assert report_offsets(lag, second, 1000) == second
        still.now += 1
    for second in range(60, 120):
        assert report_offsets(lag, second, 1000 + second) == second
        still.now += 1


def test_few_ends_are_remembered(still: Clock) -> None:
    """An hour behind, for hours: the bound is about a twentieth above at most, never below."""
    lag = LagReporter("a stage")
    report_offsets(lag, 0, 0)
    for second in range(1, 20_000):
        still.now += 1
        seconds = report_offsets(lag, max(0, second - 3600), second)
        assert seconds is not None
        assert min(second, 3600) <= seconds <= 3600 * (1 + 1.1 / ENDS_PER_LAG)
        assert len(lag.partitions[HERE].ends) <= 10 * ENDS_PER_LAG


def test_a_source_that_ends_earlier_is_seen_anew(still: Clock) -> None:
    """It lost records, or is another candidate: the offsets behind its end will be others."""
    lag = LagReporter("a stage")
    report_offsets(lag, 10, 10)
    still.now += 5
    assert report_offsets(lag, 10, 30) == 5
    still.now += 5
    assert report_offsets(lag, 10, 20) == 10
    assert [end for end, _ in lag.partitions[HERE].ends] == [10, 20]
