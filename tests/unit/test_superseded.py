"""When a run of stage one has to give way to a new plan: by the frontiers committed now."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from common.frontier import Frontier, RuleState
from common.kafka.partition_offsets import GroupCommit
from common.routes import TopicPartition
from replicator.run_watch import Watch

TP = TopicPartition("orders-proxy", 0)


@pytest.mark.parametrize(
    ("frontier", "epoch", "is_superseded"),
    [
        (1, 6, False),  # as it was planned
        (5, 7, False),  # its own records are copied
        (1, 8, True),  # a newer run has begun
        (-1, 6, True),  # the partition was begun again, when its destination was recreated
        (0, 7, True),
    ],
)
def test_a_run_gives_way(frontier: int, epoch: int, is_superseded: bool) -> None:
    """The run has epoch 7 and begins at source offset 2."""
    watch = SimpleNamespace(plan=SimpleNamespace(epoch=7, start_offsets={TP: 2}))
    state = Frontier(RuleState(frontier, epoch, None), "0123456789abcdef", 1, "id", -1, 0)
    snapshot = SimpleNamespace(commits={TP: GroupCommit(0, state)})
    assert Watch._is_superseded(cast(Any, watch), cast(Any, snapshot)) is is_superseded
