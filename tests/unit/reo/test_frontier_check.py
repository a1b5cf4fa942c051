"""`reo check` runs the start of stage two, and changes nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from common.frontier import Frontier
from common.kafka import topic_creation, topic_fitness
from common.kafka.consumer_group import Members
from common.kafka.route_topics import RouteTopics
from common.kafka.topics import Topic
from common.routes import TopicPartition
from common.settings import Settings, load
from deduplicator.frontiers.frontier_store import LoadedFrontiers
from reo import check
from reo.check import Start
from reo.checks import frontier
from reo.checks.findings import report_ok
from tests.unit.common.settings.test_settings import GOOD


def describe_topics(settings: Settings, partitions: int) -> RouteTopics:
    """All of the only route exist, with so many partitions."""
    (route,) = settings.build_routes()
    source = Topic(route.source_topic, "id", partitions, "source")
    existing = {
        name: Topic(name, "id", partitions, "destination")
        for name in (route.intermediate_topic, route.destination_topic)
    }
    return RouteTopics(settings, None, None, {route: source}, {}, existing, 1)


def test_a_topic_that_was_deleted_just_now_is_not_created(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's start creates it; here it was there when the topics were described, and is gone
    when they are described again.
    """
    settings = load(GOOD)
    state = describe_topics(settings, 1)
    (route,) = state.sources
    group = SimpleNamespace(
        name="g", describe_members=lambda: Members("empty", {}), list_commits=lambda *_, **__: {}
    )
    worker_group = SimpleNamespace(liveness=None, describe_intermediates=lambda _: {})
    store = SimpleNamespace(
        list_started_topics=set,
        load_frontiers=lambda _: LoadedFrontiers({}, set()),
        describe_destinations=lambda _: {route.intermediate_topic: state.existing},
    )
    asked: list[Any] = []
    monkeypatch.setattr(frontier, "Group", lambda _: group)
    monkeypatch.setattr(frontier, "WorkerGroup", lambda *_: worker_group)
    monkeypatch.setattr(frontier, "KafkaFrontierStore", lambda _: store)
    monkeypatch.setattr(topic_creation, "prepare_topics", lambda *given: asked.append(given))
    found = list(frontier.check_frontier(settings, state, with_source=False))
    assert [(finding.about, finding.to_do) for finding in found if finding.to_do] == [
        ("frontier", "check again")
    ]
    assert asked == []


def test_of_a_cycle_nothing_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The records of the topic are the source's own: no frontier is missed beside the cycle."""
    settings = load(GOOD)
    (route,) = settings.build_routes()
    source = Topic(route.source_topic, "id", 1, "one cluster")
    existing = {route.destination_topic: source}
    start, asked = Start(settings), [report_ok("frontier", "asked")]
    start.topics = RouteTopics(settings, None, None, {route: source}, {}, existing, 1)
    monkeypatch.setattr(frontier, "check_frontier", lambda *_, **__: asked)
    assert list(check._check_frontier(start)) == []
    existing[route.destination_topic] = Topic(route.source_topic, "id", 1, "another cluster")
    assert list(check._check_frontier(start)) == asked
    (cycle,) = topic_fitness.find_cycles({route: source}, {route.destination_topic: source})
    assert str(cycle).endswith("or correct one of the two bootstrap_servers")


def test_a_destination_that_is_gone_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic would be created: the line of the frontier says that the copy begins again."""
    settings = load(GOOD)
    (route,) = settings.build_routes()
    source, tp = Topic(route.source_topic, "id", 1, "source"), route.get_intermediate(0)
    state = RouteTopics(settings, None, None, {route: source}, {}, {}, 1)
    frontiers = {tp: Frontier(3399, 5, "identity", 1, "its id", 3399, 0)}
    group = SimpleNamespace(
        list_commits=lambda *_, **__: frontiers, list_frontiers=lambda: frontiers
    )
    monkeypatch.setattr(frontier, "check_start_offsets", lambda *_: None)
    monkeypatch.setattr(
        frontier, "find_first_source_offsets", lambda *asked: dict.fromkeys(asked[2], 0)
    )
    monkeypatch.setattr(frontier, "_describe_offsets", lambda _, begins: str(begins))
    (found,) = frontier._check_first_offsets(state, cast(Any, group), route, source)
    assert (found.level, found.about) == ("warning", f"frontier of {route.source_topic}")
    begins = {route.get_source(0): 0}
    assert found.seen == f"{frontier.BEGINS_AGAIN} {begins}"


def test_partitions_are_listed_once_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beside a service that runs: the frontiers of other topics of the group are left out."""
    settings = load(GOOD)
    state = describe_topics(settings, 500)
    (route,) = state.sources
    copied = [route.get_intermediate(number) for number in range(500)]
    frontiers = dict.fromkeys([*copied, TopicPartition("other", 0)], "a frontier")
    group = SimpleNamespace(
        name="g",
        describe_members=lambda: Members("stable", {"worker": 500}),
        list_frontiers=lambda: frontiers,
    )
    listed: list[Any] = []
    checked: list[Any] = []
    monkeypatch.setattr(frontier, "Group", lambda _: group)
    monkeypatch.setattr(
        frontier, "list_intermediate_partitions", lambda ready: listed.append(ready) or copied
    )
    monkeypatch.setattr(
        frontier, "_check_source", lambda *given: checked.append(given[-1].keys()) or []
    )
    list(frontier.check_frontier(settings, state))
    assert checked == [set(copied)]
    assert len(listed) == 1
