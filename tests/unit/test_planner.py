"""A refused source is believed only when the frontiers are certain (`replicator.run_planner`); on
real brokers: `tests/broker/test_frontier_in_doubt.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from common import source_candidates
from common.errors import ClusterUnreachable, ReoError, SourceRefused, SourceTruncated
from common.kafka import permissions, topics
from common.routes import TopicPartition
from replicator import run_planner
from replicator.run_planner import Planner

TP = TopicPartition("orders-proxy", 0)


def plan_with(
    monkeypatch: pytest.MonkeyPatch,
    refuse: Callable[[], None],
    has_moved: list[bool],
    partitions_found: Sequence[int] = (1,),
) -> int:
    """How often the source is compared with the frontiers until there is a plan: the first time it
    is refused. `partitions_found`: how many the selected source has, one after the other.
    """
    found = list(partitions_found)
    compared = 0

    def select_source(*_: object) -> Any:
        nonlocal compared
        compared += 1
        if compared == 1:
            refuse()
        return SimpleNamespace(settings=None, sources=found.pop(0))

    unused = cast(Any, None)
    planner = Planner(
        cast(Any, SimpleNamespace(source=SimpleNamespace(backoff_min_ms=1, backoff_max_ms=1))),
        cast(Any, SimpleNamespace(use_source=lambda _: None)),
        cast(Any, SimpleNamespace(select_source=select_source)),
        unused,
        lambda: False,
    )
    monkeypatch.setattr(source_candidates, "select_answering", lambda settings: settings)
    monkeypatch.setattr(permissions, "check_permissions", lambda *_: None)
    for name, result in (
        ("_prepare_sources", {}),
        ("_wait_for_frontiers", {TP: SimpleNamespace(frontier=None)}),
        ("_build_plan", "the plan"),
    ):
        monkeypatch.setattr(planner, name, lambda *_, result=result: result)
    monkeypatch.setattr(planner, "_has_moved", lambda _: has_moved.pop(0))
    monkeypatch.setattr(run_planner, "wait_unless_stopping", lambda *_: None)
    monkeypatch.setattr(
        topics,
        "list_intermediate_partitions",
        lambda count: [TopicPartition(TP.topic, partition) for partition in range(count or 1)],
    )
    assert planner.plan() == cast(Any, "the plan")
    return compared


@pytest.mark.parametrize("error", [SourceTruncated, SourceRefused])
def test_a_refusal_counts_only_with_certain_frontiers(
    monkeypatch: pytest.MonkeyPatch, error: type[ReoError]
) -> None:
    """What the source no longer has can be copied: the plan begins anew. SourceRefused can stand
    for one candidate that differs and another one that is truncated.
    """

    def refuse() -> None:
        raise error("orders-0 begins at offset 21 now")

    assert plan_with(monkeypatch, refuse, [True]) == 2
    with pytest.raises(error):
        plan_with(monkeypatch, refuse, [False])


def test_a_plan_has_every_partition_of_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """With failover: the candidate that was asked for the partitions lacks one of those that the
    selected one has. It would not be copied, and nothing would say so.
    """
    assert plan_with(monkeypatch, lambda: None, [], (2, 1)) == 2


@pytest.mark.parametrize("has_another", [True, False])
def test_a_candidate_that_dies_while_a_run_is_planned(
    monkeypatch: pytest.MonkeyPatch, has_another: bool
) -> None:
    """Another one is asked, in the same process; without another one the error is raised."""
    answering = [1, 2, 2] if has_another else [1, 1]
    asked = []

    def check_permissions(settings: Any, _: str) -> None:
        asked.append(settings.source_cluster.number)
        if settings.source_cluster.number == 1:
            raise ClusterUnreachable("the source cluster does not answer")

    def select_answering(_: Any) -> Any:
        return SimpleNamespace(source_cluster=SimpleNamespace(number=answering.pop(0)))

    monkeypatch.setattr(permissions, "check_permissions", check_permissions)
    monkeypatch.setattr(source_candidates, "select_answering", select_answering)
    unused = cast(Any, None)
    planner = Planner(
        cast(Any, SimpleNamespace(source=SimpleNamespace(backoff_min_ms=1))),
        unused,
        unused,
        unused,
        lambda: False,
    )
    monkeypatch.setattr(planner, "_prepare_sources", lambda _: {})
    monkeypatch.setattr(planner, "_wait_for_frontiers", lambda _: None)
    if has_another:
        assert planner.plan() is None
        assert asked == [1, 2]
    else:
        with pytest.raises(ClusterUnreachable):
            planner.plan()
        assert asked == [1]
    assert not answering
