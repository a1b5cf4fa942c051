"""`reo check` runs the start of stage two, and changes nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from common.kafka import topic_creation
from common.kafka.consumer_group import Members
from common.kafka.route_topics import RouteTopics
from common.kafka.topics import Topic
from common.settings import load
from deduplicator.frontiers.frontier_store import LoadedFrontiers
from reo.checks import frontier
from tests.unit.common.settings.test_settings import GOOD


def test_a_topic_that_was_deleted_just_now_is_not_created(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's start creates it; here it was there when the topics were described, and is gone
    when they are described again.
    """
    settings = load(GOOD)
    (route,) = settings.build_routes()
    source = Topic(route.source_topic, "id", 1, "source")
    existing = {
        name: Topic(name, "id", 1, "destination")
        for name in (route.intermediate_topic, route.destination_topic)
    }
    state = RouteTopics(settings, None, None, {route: source}, {}, existing, 1)
    group = SimpleNamespace(
        name="g", describe_members=lambda: Members("empty", {}), list_commits=lambda *_, **__: {}
    )
    worker_group = SimpleNamespace(liveness=None, describe_intermediates=lambda _: {})
    store = SimpleNamespace(
        list_started_topics=set,
        load_frontiers=lambda _: LoadedFrontiers({}, set()),
        describe_destinations=lambda _: {route.intermediate_topic: existing},
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
