"""How far behind is too far for `reo lag`, and what it and `reo status` say when they do not know
it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from common.errors import DestinationTruncated, FrontierLost, LagsBehind, TopicMissing
from common.kafka.consumer_group import Members
from common.route_states import EXCEPT_HALTED, RouteState
from common.routes import TopicPartition
from reo.progress.lag import check_limits
from reo.progress.partition_progress import Lag, Lags, PartitionProgress
from reo.progress.progress_snapshot import Snapshot
from reo.progress.status import Status

FRONTIER = cast(Any, "a frontier")


def progress(lag: Lag, frontier: Any = FRONTIER) -> PartitionProgress:
    """A partition with this lag."""
    here, there = TopicPartition("orders", 0), TopicPartition("orders.reo", 0)
    return PartitionProgress(here, there, 9, 9, 9, 9, frontier, Lags(both=lag), None, 0, 0, False)


def test_how_far_behind_is_too_far() -> None:
    """Both bounds are said when both are exceeded; a bound itself is allowed; seconds that are not
    known exceed nothing.
    """
    for lag in (Lag(5, 2.0), Lag(5, None), Lag(0, 0.0)):
        check_limits([progress(lag)], 5, 2.0)
    check_limits([progress(Lag(10**9, 10.0**9))], None, None)
    with pytest.raises(
        LagsBehind,
        match=(
            r"6 records, more than --max-records 5 and by 2\.1 seconds, more than --max-seconds 2"
        ),
    ):
        check_limits([progress(Lag(6, 2.1))], 5, 2.0)


def test_a_lag_that_is_not_known_is_within_no_limit() -> None:
    """No topic matches, or a partition has no frontier, where `source.start=latest` counts as 0;
    what another partition exceeds is said first.
    """
    begun, not_begun = progress(Lag()), progress(Lag(), frontier=None)
    with pytest.raises(TopicMissing, match="no source topic matches"):
        check_limits([], 5, None)
    with pytest.raises(FrontierLost, match="the copy has no frontier for orders-0"):
        check_limits([begun, not_begun], None, 2.0)
    with pytest.raises(LagsBehind):
        check_limits([progress(Lag(6, 2.1)), not_begun], 5, None)
    gone = replace(not_begun, gone_topic="copies")
    with pytest.raises(DestinationTruncated, match="copies: deleted at the destination"):
        check_limits([gone, begun], 0, None)
    check_limits([], None, None)
    check_limits([not_begun, gone], None, None)


@pytest.mark.parametrize(
    ("partitions", "said"),
    [
        ([progress(Lag())], "all is copied"),
        ([], "there is nothing to copy"),
        (
            [progress(Lag()), progress(Lag(), frontier=None)],
            "the copy has not begun with orders-0",
        ),
        (
            [progress(Lag()), replace(progress(Lag(), frontier=None), gone_topic="copies")],
            (
                "copies: deleted at the destination, or recreated, since it was copied to. The copy"
                " begins again; 0 records wait"
            ),
        ),
    ],
)
def test_what_the_status_says_of_no_lag(partitions: list[PartitionProgress], said: str) -> None:
    """All is copied only where all has begun."""
    before, now = (Snapshot(at_s, {}, partitions, {}) for at_s in (0.0, 1.0))
    assert Status(before, now, Members("empty", {}), None).describe_progress() == said


def test_the_status_says_that_what_waits_is_halted() -> None:
    """Nobody is to look for a fault because of it."""
    halted = {"orders": RouteState("paused", 0, "somebody@somewhere")}
    partitions = [progress(Lag(6, 2.1))]
    before, now = (Snapshot(at_s, {}, partitions, {}, halted) for at_s in (0.0, 1.0))
    status = Status(before, now, Members("empty", {}), None)
    assert status.describe_progress() == f"all is copied{EXCEPT_HALTED}"


def test_messages_name_some_of_many_partitions() -> None:
    """Of 5,000 partitions that have not begun, or of 100 topics whose copies are gone."""
    partitions = [
        replace(progress(Lag(), frontier=None), source=TopicPartition("orders", number))
        for number in range(20)
    ]
    some = ", ".join(f"orders-{number}" for number in range(8)) + " and 12 more"
    before, now = (Snapshot(at_s, {}, partitions, {}) for at_s in (0.0, 1.0))
    said = Status(before, now, Members("empty", {}), None).describe_progress()
    assert said == f"the copy has not begun with {some}"
    with pytest.raises(FrontierLost, match=f"has no frontier for {some}\\."):
        check_limits(partitions, 0, None)
    gone = [replace(row, gone_topic=f"copy{number:02}") for number, row in enumerate(partitions)]
    with pytest.raises(DestinationTruncated, match=r"^copy00, .*copy07 and 12 more: deleted"):
        check_limits(gone, 0, None)
