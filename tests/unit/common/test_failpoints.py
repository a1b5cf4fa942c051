"""Named points at which a test kills a process (`common.failpoints`), and that the crash matrix has
each of them; with processes that die: `tests/e2e/test_crash_points.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from common import failpoints
from tests.harness.crash_matrix import STAGE_ONE, STAGE_TWO


def test_no_point_is_left_out() -> None:
    """Each row of the crash matrix is one of the deaths of `tests.harness.crash_matrix`."""
    assert sorted(point for deaths in (*STAGE_TWO, *STAGE_ONE) for point in deaths) == sorted(
        get_args(failpoints.Failpoint)
    )


def test_a_point_that_was_met_is_not_met_again(tmp_path: Path) -> None:
    """The proof of one death keeps a restarted process from dying at the same point for ever."""
    armed = failpoints.ArmedFailpoint(f"two: begun:2:{tmp_path / 'died'}")
    assert [
        armed.should_trigger("two: begun"),
        armed.should_trigger("two: written"),
        armed.should_trigger("two: begun"),
    ] == [False, False, True]
    assert not failpoints.ArmedFailpoint(f"two: begun:1:{tmp_path / 'died'}").should_trigger(
        "two: begun"
    )


def test_unset_nothing_dies() -> None:
    """Without REO_DIE_AT and REO_FREEZE_AT no point is armed."""
    assert failpoints.ARMED == ()
