"""A refused source is believed only when the frontiers are certain (`replicator.run_planner`); on
real brokers: `tests/broker/test_frontier_in_doubt.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from common import source_candidates
from common.errors import AccessRefused, ReoError, SourceRefused, SourceTruncated
from common.kafka import permissions, topic_creation, topics
from common.liveness import Liveness
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
    monkeypatch.setattr(source_candidates, "try_candidates", lambda settings, use: use(settings))
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


def test_what_one_candidate_lacks_does_not_end_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one is prepared, in the same process."""
    asked = []

    def check_permissions(settings: Any, _: str) -> None:
        asked.append(settings)
        if settings == "the first":
            raise AccessRefused("orders may not be described")

    def try_both(_: object, use: Callable[[Any], Any]) -> Any:
        with pytest.raises(AccessRefused):
            use("the first")
        return use("the second")

    unused = cast(Any, None)
    planner = Planner(
        cast(Any, SimpleNamespace(source=SimpleNamespace(backoff_min_ms=1), stop_at_end=True)),
        unused,
        unused,
        Liveness("test"),
        lambda: False,
    )
    monkeypatch.setattr(permissions, "check_permissions", check_permissions)
    monkeypatch.setattr(source_candidates, "try_candidates", try_both)
    monkeypatch.setattr(topic_creation, "prepare_topics", lambda *_: {})
    monkeypatch.setattr(planner, "_wait_for_frontiers", lambda _: None)
    assert planner.plan() is None
    assert asked == ["the first", "the second"]
