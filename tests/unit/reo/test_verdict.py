"""What `reo verify` calls a difference, and what is only not copied yet."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from common.route_states import RouteState
from common.routes import TopicPartition
from reo.compare.comparison import Comparison
from reo.compare.verdict import Verdict


def lacking(missing: int, source_offset: int = 3400, difference: str = "differs") -> Comparison:
    """A comparison whose destination ends before the source, by so many records."""
    result = Comparison(TopicPartition("orders", 0), 3400, 3400, equal=3400)
    record = cast(Any, SimpleNamespace(offset=lambda: source_offset))
    result.set_difference(record, None, difference, missing)
    return result


@pytest.mark.parametrize(
    ("missing", "copied_up_to", "exit_code"),
    [
        pytest.param(1700, 3399, 36, id="all after the frontier"),
        pytest.param(1700, 3400, 30, id="the frontier covers one of them"),
        pytest.param(0, 3399, 30, id="another difference after the frontier"),
    ],
)
def test_what_is_after_the_frontier_is_not_copied_yet(
    missing: int, copied_up_to: int, exit_code: int
) -> None:
    """Only records that are missing at the end, all of them after the frontier."""
    result = lacking(missing)
    result.exclude_not_copied(copied_up_to)
    verdict = Verdict([result], (), (), 0, 1.0)
    assert verdict.exit_code == exit_code
    is_behind = exit_code == 36
    assert ("let the copy catch up, or use --wait 60" in str(verdict)) == is_behind
    assert ("1 of 1 partitions differ" in str(verdict)) != is_behind
    assert verdict.to_dict()["verdict"] == ("not copied yet" if is_behind else "differs")
    assert verdict.to_dict()["not_copied"] == (missing if is_behind else 0)


def test_what_is_halted_never_catches_up() -> None:
    """The verdict names the command that ends it."""
    result = lacking(1700)
    result.exclude_not_copied(3399)
    halted = {"orders": RouteState("paused", 0, "somebody@somewhere")}
    verdict = Verdict([result], (), (), 0, 1.0, halted)
    assert str(verdict).endswith(
        "1700 records are not copied yet: orders is paused since 1970-01-01 00:00:00 UTC, by"
        " somebody@somewhere. To go on: reo resume orders"
    )


def test_a_difference_comes_first() -> None:
    """Beside another partition that is behind: both are said."""
    behind, differing = lacking(1700), lacking(0)
    behind.exclude_not_copied(-1)
    verdict = Verdict([behind, differing], (), (), 0, 1.0)
    assert verdict.exit_code == 30
    assert "1 of 2 partitions differ; 1700 records are not copied yet" in str(verdict)


def test_a_comparison_by_key_forgets_what_was_missing() -> None:
    """It begins again, and its differences are others."""
    result = lacking(1700)
    result.set_difference(None, None, "")
    assert result.missing == 0
