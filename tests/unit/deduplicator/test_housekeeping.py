"""What a worker does between its rounds (`deduplicator.worker`)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from common import clock
from common.routes import TopicPartition
from common.settings import load
from deduplicator import worker
from deduplicator.partition import Partition
from tests.harness.intermediate_records import HERE
from tests.harness.stage_two import FIRST_FRONTIER, ROUTE

ROUNDS = 50
ROUND_S = 0.3


def test_no_commit_is_unfinished_when_the_lag_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The positions are those of the last commit that was started. If it then fails, what it has
    is not copied: a lag that does not count it would be too low.
    """
    now_s, rounds, reports = 100.0, 0, 0
    is_unfinished = False

    def run_round(finish: bool = False) -> None:
        nonlocal now_s, rounds, is_unfinished
        now_s, rounds, is_unfinished = now_s + ROUND_S, rounds + 1, not finish

    def run_housekeeping() -> None:
        nonlocal reports
        assert not is_unfinished
        reports += 1

    settings = load(
        {
            "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1",
            "REO_DESTINATION_BOOTSTRAP_SERVERS": "b:1",
            "REO_SOURCE_TOPIC": "t",
        }
    )
    parts = SimpleNamespace(
        loop=SimpleNamespace(run_round=run_round),
        liveness=SimpleNamespace(reason=None),
        run_housekeeping=run_housekeeping,
        close=lambda **_: None,
    )
    monkeypatch.setattr(clock, "monotonic", lambda: now_s)
    monkeypatch.setattr(worker, "build", lambda *_: cast(Any, parts))
    worker.run(settings, 0, lambda: rounds == ROUNDS)
    assert 1 < reports < ROUNDS, "housekeeping is due now and then, not after each round"


@pytest.mark.parametrize(
    ("ends", "purged"), [({HERE: 3}, 3), ({HERE: 20}, 8), ({}, 8)], ids=["short", "long", "unknown"]
)
def test_nothing_is_purged_beyond_the_end(ends: dict[TopicPartition, int], purged: int) -> None:
    """In a topic that was created again, the position can be beyond the end until something comes:
    a broker refuses to delete up to there.
    """
    parts = MagicMock()
    parts.partitions.assigned = {HERE: Partition(HERE, ROUTE, 8, FIRST_FRONTIER)}
    parts.ends.answer = ends
    parts.intermediate.get_cached_lag.return_value = 0
    worker.Worker.run_housekeeping(parts)
    parts.purge.delete_committed.assert_called_once_with({HERE: purged})
