"""A worker is ready only when it knows its partitions and has compared their frontiers: `reo run
--stop-at-end` believes it.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from common import runtime
from deduplicator import worker
from deduplicator.intermediate_consumer import EMPTY_ASSIGNMENT_S
from deduplicator.partitions import Partitions
from tests.unit.test_rebalance import BOTH_PROTOCOLS, FIRST, Stand


@BOTH_PROTOCOLS
def test_a_worker_is_not_ready_while_its_frontiers_are_compared(incremental: bool) -> None:
    """It was ready without partitions; the answer can take long. What it waited for before stays
    its reason.
    """
    stand = Stand(incremental)
    stand.loop.liveness.set_ready()
    stand.happens("on_assign", FIRST)
    stand.loop.run_round()
    assert stand.reason_at_start == "destination"
    stand.loop.liveness.report_waiting("transaction")
    stand.happens("on_assign", FIRST)
    stand.loop.run_round()
    assert stand.reason_at_start == "transaction"


@BOTH_PROTOCOLS
def test_a_member_has_no_assignment_before_it_is_told(
    incremental: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Being a member is not enough; an assignment without partitions is one. After a revocation the
    next one counts.
    """
    monkeypatch.setattr(runtime, "monotonic", lambda: 100.0)
    stand = Stand(incremental)
    intermediate = stand.loop.intermediate
    assert not intermediate.has_assignment()
    for events in (
        [("on_assign", True)],
        [("on_assign", True), ("on_revoke", False), ("on_assign", True)],
        [("on_lost", False), ("on_assign", True)],
    ):
        for callback, expected in events:
            stand.client.callbacks[callback](stand.client, [])
            assert intermediate.has_assignment() == expected
    stand.client.generation = -1
    assert not intermediate.has_assignment(), "it is not a member"


@BOTH_PROTOCOLS
def test_a_member_without_partitions_is_told_nothing(
    incremental: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With group.protocol=consumer: it has none if it gets none for a while. The classic protocol
    always tells.
    """
    now_s = 100.0
    monkeypatch.setattr(runtime, "monotonic", lambda: now_s)
    stand = Stand(incremental)
    intermediate = stand.loop.intermediate
    stand.client.generation = -1
    assert not intermediate.has_assignment()
    now_s += EMPTY_ASSIGNMENT_S
    stand.client.generation = 4
    assert not intermediate.has_assignment(), "the time begins when it is a member"
    now_s += EMPTY_ASSIGNMENT_S - 1
    assert not intermediate.has_assignment()
    now_s += 1
    assert intermediate.has_assignment() == incremental
    stand.client.callbacks["on_lost"](stand.client, [])
    assert not intermediate.has_assignment(), "the time begins again"


@pytest.mark.parametrize(("has_assignment", "reason"), [(False, "group"), (True, None)])
def test_a_worker_without_an_assignment_is_not_ready(
    has_assignment: bool, reason: str | None
) -> None:
    """It has no partition that waits, so nothing else would say so; it may get some in a moment."""
    parts = SimpleNamespace(
        ends=SimpleNamespace(has_answered=True),
        partitions=Partitions(),
        destination=SimpleNamespace(is_answering=lambda: True),
        intermediate=SimpleNamespace(is_member=True, has_assignment=lambda: has_assignment),
        loop=SimpleNamespace(has_failed=False),
    )
    assert worker.Worker._find_wait_reason(cast(Any, parts), {}) == reason
