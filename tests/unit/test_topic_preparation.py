"""Preparing many topics takes longer than the watchdog waits: each is a sign of life."""

from __future__ import annotations

import pytest

from common.kafka import topic_creation, topics
from common.kafka.topics import Topic
from common.settings import load
from tests.unit.test_settings import GOOD


def test_each_topic_is_a_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """The heartbeat is set between two topics, whose clusters are asked one request after the
    other.
    """
    settings = load(
        {name: text for name, text in GOOD.items() if "TOPIC" not in name}
        | {"REO_TOPICS": "a,b,c", "REO_APPLICATION": "many"}
    )
    copied = {
        route: Topic(route.source_topic, "id", 1, "source") for route in settings.build_routes()
    }
    told: list[str] = []
    monkeypatch.setattr(topics, "describe_sources", lambda *_: copied)
    monkeypatch.setattr(topics, "look_up", lambda *_: {})
    monkeypatch.setattr(topics, "count_brokers", lambda *_: 1)
    monkeypatch.setattr(topic_creation, "create_admin_client", lambda *_: None)
    monkeypatch.setattr(
        topic_creation, "_create_route_topics", lambda *given: told.append(given[4].name)
    )
    assert topic_creation.prepare_topics(settings, lambda: told.append("beat")) == copied
    assert told == ["beat", "a", "beat", "b", "beat", "c"]
