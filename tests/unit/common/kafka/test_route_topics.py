"""Which frontiers are of a destination topic that is gone."""

from __future__ import annotations

import pytest

from common.frontier import Frontier
from common.kafka.route_topics import find_gone
from common.kafka.topics import Topic
from common.routes import TopicPartition
from common.settings import load
from tests.unit.common.settings.test_settings import GOOD

CLASS = {"REO_DESTINATION_CLASS": "deduplicator.postgresql:PostgresqlStore"}


@pytest.mark.parametrize(
    ("topic_id", "more", "is_gone"),
    [
        pytest.param("its id", {}, False, id="there"),
        pytest.param(None, {}, True, id="deleted"),
        pytest.param("another id", {}, True, id="recreated"),
        pytest.param(None, CLASS, False, id="a class has no topic"),
    ],
)
def test_a_frontier_is_of_the_topic_with_its_id(
    topic_id: str | None, more: dict[str, str], is_gone: bool
) -> None:
    """A start does not use it for another topic of the same name; what other routes have is not
    asked for.
    """
    settings = load(GOOD | more)
    (route,) = settings.build_routes()
    name = route.destination_topic
    existing = {name: Topic(name, topic_id, 1, "destination")} if topic_id else {}
    tp = route.get_intermediate(0)
    frontier = Frontier(3399, 5, "identity", 1, "its id", 3399, 0)
    frontiers = {tp: frontier, TopicPartition("another-proxy", 0): frontier}
    found = find_gone(settings, [route], existing, frontiers)
    assert found == ({tp: name} if is_gone else {})
