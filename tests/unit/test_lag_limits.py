"""How far behind is too far for `reo lag`."""

from __future__ import annotations

import pytest

from common.errors import LagsBehind
from reo.progress.lag import check_limits
from reo.progress.partition_progress import Lag


def test_how_far_behind_is_too_far() -> None:
    """Both bounds are said when both are exceeded; a bound itself is allowed; seconds that are not
    known exceed nothing.
    """
    for lag in (Lag(5, 2.0), Lag(5, None), Lag(0, 0.0)):
        check_limits(lag, 5, 2.0)
    check_limits(Lag(10**9, 10.0**9), None, None)
    with pytest.raises(
        LagsBehind,
        match=(
            r"6 records, more than --max-records 5 and by 2\.1 seconds, more than --max-seconds 2"
        ),
    ):
        check_limits(Lag(6, 2.1), 5, 2.0)
