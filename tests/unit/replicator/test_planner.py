"""A refused source is believed only when the frontiers are certain (`replicator.runs.planner`); on
real brokers: `tests/broker/test_frontier_in_doubt.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from common import clock, source_pool
from common.errors import (
    AccessRefused,
    ClusterUnreachable,
    ReoError,
    SourceRefused,
    SourceTruncated,
    TopicMissing,
)
from common.kafka import permissions, source_topics, topic_creation, topics
from common.kafka.topics import Topic
from common.liveness import Liveness
from common.routes import Route, TopicPartition
from common.settings import Settings, load
from replicator.runs.planner import Planner
from tests.harness.stage_without_engine import NONE_HALTED
from tests.unit.common.settings.test_settings import GOOD

TP = TopicPartition("orders-proxy", 0)


def create_planner(select_source: Callable[..., Any]) -> Planner:
    """One with this selection of a source, and clients that are never asked."""
    settings = SimpleNamespace(
        source=SimpleNamespace(backoff_min_ms=1, backoff_max_ms=1),
        destination_cluster=None,
        stop_at_end=True,
    )
    clients = SimpleNamespace(
        use_source=lambda _: None, empty_envelopes=None, destination_admin=None, source_admin=None
    )
    return Planner(
        cast(Any, settings),
        cast(Any, clients),
        cast(Any, SimpleNamespace(select=select_source, settings=SimpleNamespace(failover=True))),
        Liveness("test"),
        lambda: False,
        NONE_HALTED,
    )


@pytest.mark.parametrize(
    ("prepare", "committed", "is_prepared"),
    [
        ({TP: TP}, {TP}, True),
        ({TP: TP}, set(), False),
        (ClusterUnreachable("no answer"), {TP}, True),
        (ClusterUnreachable("no answer"), set(), False),
        (TopicMissing("deleted just now"), set(), True),
    ],
    ids=["frontiers", "no frontier", "prepared by stage two", "silence", "the next plan names it"],
)
def test_a_run_goes_on_until_what_is_new_has_frontiers(
    monkeypatch: pytest.MonkeyPatch, prepare: Any, committed: set[TopicPartition], is_prepared: bool
) -> None:
    """The topics are prepared first: stage two needs them. Only what is new is prepared, every five
    seconds, and its state is asked for, because who has paused it gets no frontier.
    """
    known: list[Any] = []
    added: list[Any] = []

    def create_missing(settings: Settings, _: object, prepared: Any) -> Any:
        assert settings.connect_timeout_s == 10, "the run is not watched meanwhile"
        known.append(prepared)
        if isinstance(prepare, Exception):
            raise prepare

    old, new = Route("old", "old", "old-proxy"), Route(TP.topic, TP.topic, TP.topic)
    now = {old: Topic("old", "id", 1, "source"), new: Topic(TP.topic, "id", 1, "source")}
    plan: Any = SimpleNamespace(
        settings=load(GOOD | {"REO_CONNECT_TIMEOUT_S": "60"}),
        sources={old: now[old]},
        start_offsets={TopicPartition("old-proxy", 0): 0},
    )
    planner = create_planner(lambda: None)
    planner.halted = cast(Any, SimpleNamespace(add=added.append))
    monkeypatch.setattr("replicator.runs.planner.load_route_topics", lambda settings: settings)
    monkeypatch.setattr(topic_creation, "create_missing", create_missing)
    monkeypatch.setattr(planner, "try_read_commits", lambda asked: dict.fromkeys(asked & committed))
    for _ in range(3):
        assert planner.is_prepared(plan, now) is is_prepared
        if isinstance(prepare, TopicMissing):
            planner.prepare_again_at_s = 0.0
    assert added == [now] * 3
    assert known == [{old}] * (3 if isinstance(prepare, TopicMissing) else 1)


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_topic_that_appears_while_all_are_paused_is_copied(
    monkeypatch: pytest.MonkeyPatch, is_answered: bool
) -> None:
    """Every five seconds the source is asked for topics; nothing else needs it. Stage one is ready
    only when the destination answers.
    """
    now_s, ready, asked = 1000.0, 0, 0
    planner = create_planner(lambda: None)
    planner.halted = cast(
        Any,
        SimpleNamespace(
            topics=frozenset(), halted={}, report=lambda: None, is_answered=is_answered
        ),
    )

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    def list_routes(*_: object) -> list[Any]:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise AccessRefused("its certificate has expired")
        return [] if asked == 2 else ["a route"]

    def set_ready() -> None:
        nonlocal ready
        ready += 1

    monkeypatch.setattr(clock, "sleep", sleep)
    monkeypatch.setattr(clock, "monotonic", lambda: now_s)
    monkeypatch.setattr(source_topics, "list_routes", list_routes)
    monkeypatch.setattr(planner.liveness, "set_ready", set_ready)
    planner._wait_for_resume()
    assert (asked, bool(ready)) == (3, is_answered)
    assert 1015 <= now_s < 1016


def plan_with(
    monkeypatch: pytest.MonkeyPatch,
    refuse: Callable[[], None],
    has_moved: list[bool],
    partitions_found: Sequence[int] = (1,),
    is_built: bool = False,
) -> int:
    """How often the source is compared with the frontiers until there is a plan: the first time it
    is refused. `partitions_found`: how many the selected source has, one after the other;
    `is_built`: with the sizes that the topics allow.
    """
    found = list(partitions_found)
    compared = 0

    def select_source(*_: object) -> Any:
        nonlocal compared
        compared += 1
        if compared == 1:
            refuse()
        return SimpleNamespace(settings=None, sources=found.pop(0))

    planner = create_planner(select_source)
    monkeypatch.setattr(source_pool, "try_sources", lambda settings, use: use(settings))
    monkeypatch.setattr(planner, "_prepare_sources", lambda _: {})
    monkeypatch.setattr(planner, "_install_epoch", lambda _: {TP: None})

    def build_plan(*_: object) -> Any:
        assert not is_built or planner._find_message_bytes_max([TP]) == {TP.topic: 1000}
        return "the plan"

    monkeypatch.setattr(planner, "_build_plan", build_plan)
    monkeypatch.setattr(planner, "_has_moved", lambda _: has_moved.pop(0))
    monkeypatch.setattr("replicator.runs.planner.wait_unless_stopping", lambda *_: None)
    monkeypatch.setattr(
        source_topics,
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
        cast(Any, SimpleNamespace(empty_envelopes=None)),
        unused,
        Liveness("test"),
        lambda: len(asked) == 2,
        NONE_HALTED,
    )
    monkeypatch.setattr(permissions, "check_permissions", check_permissions)
    monkeypatch.setattr(source_pool, "try_sources", try_both)
    monkeypatch.setattr(
        "replicator.runs.planner.load_route_topics", lambda _: SimpleNamespace(sources={})
    )
    monkeypatch.setattr(topic_creation, "create_missing", lambda *_: {})
    monkeypatch.setattr(planner, "_install_epoch", lambda _: None)
    assert planner.plan() is None
    assert asked == ["the first", "the second"]


def test_a_topic_that_is_deleted_while_the_plan_is_made_is_prepared_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its frontiers showed the epoch; now its configuration cannot be read."""
    sizes: list[Any] = [TopicMissing("reading the configuration of topic copy-proxy"), 1000]

    def get_message_bytes_max(*_: object) -> int:
        size = sizes.pop(0)
        if isinstance(size, ReoError):
            raise size
        return cast(int, size)

    monkeypatch.setattr(topics, "get_message_bytes_max", get_message_bytes_max)
    assert plan_with(monkeypatch, lambda: None, [], (1, 1), is_built=True) == 2
