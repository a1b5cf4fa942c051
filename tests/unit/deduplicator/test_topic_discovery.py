"""Topics that match a pattern are discovered in a thread, whose errors the loop raises."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from common import clock
from common.errors import TopicMissing
from common.kafka import source_topics, topic_creation
from common.routes import Route
from common.settings import load
from deduplicator import topic_discovery
from deduplicator.topic_discovery import TopicDiscovery
from tests.unit.common.settings.test_settings import GOOD

OLD, NEW = Route("orders", "copy", "copy-proxy"), Route("orders-2", "copy-2", "copy-2-proxy")


def test_an_error_is_raised_once_and_discovery_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A route that has stopped is left out from then on, also one that has just appeared; a topic
    that appears later is copied, and the known ones are not prepared again.
    """
    answers: list[Any] = [TopicMissing("orders-1 was deleted", topic="orders-1"), {OLD: 1, NEW: 1}]
    known: list[Any] = []
    added: list[Any] = []
    settings = load(
        {name: text for name, text in GOOD.items() if "TOPIC" not in name}
        | {"REO_TOPICS": "^orders(.*)=copy\\1", "REO_APPLICATION": "many"}
    )

    def describe_sources(*_: object) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def create_missing(_: object, **given: Any) -> Any:
        known.append(set(given["known"]))
        return {OLD: 1, NEW: 1}

    monkeypatch.setattr(clock, "start_thread", lambda *_: None)
    monkeypatch.setattr(topic_discovery, "create_admin_client", lambda *_: None)
    monkeypatch.setattr(source_topics, "describe_sources", describe_sources)
    monkeypatch.setattr(topic_discovery, "load_route_topics", lambda _: None)
    monkeypatch.setattr(topic_creation, "create_missing", create_missing)
    halted = cast(Any, SimpleNamespace(topics=frozenset(), add=added.append))
    discovery = TopicDiscovery(settings, [OLD], halted)
    discovery.stopped = cast(Any, SimpleNamespace(wait=lambda _: not answers))
    discovery._run()
    with pytest.raises(TopicMissing, match="orders-1"):
        discovery.find_new_routes([OLD])
    assert discovery.find_new_routes([OLD]) == {NEW}
    assert known == [{OLD}]
    assert added == [{OLD: 1, NEW: 1}] * 2
