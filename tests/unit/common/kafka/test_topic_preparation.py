"""What topics are created with. Preparing many of them takes longer than the watchdog waits: each
is a sign of life.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka.admin import ConfigSource

from common import clock
from common.envelope import OFFSET_MAX, EnvelopeRecord, Head
from common.errors import TopicMissing, TopicsUnfit
from common.kafka import route_topics, source_topics, topic_creation, topics
from common.kafka.copied_configs import ENVELOPE_EXTRA_BYTES, LIMIT
from common.kafka.route_topics import RouteTopics
from common.kafka.topics import Topic
from common.routes import Route
from common.settings import Settings, load
from reo.checks.topics import check_group_size, check_topics
from tests.unit.common.settings.test_settings import GOOD
from tools.envelope_encoder import encode


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
    monkeypatch.setattr(source_topics, "describe_sources", lambda *_: copied)
    monkeypatch.setattr(topics, "look_up", lambda *_: {})
    monkeypatch.setattr(topics, "count_brokers", lambda *_: 1)
    monkeypatch.setattr(topics, "list_names", lambda *_: ())
    monkeypatch.setattr(route_topics, "create_admin_clients", lambda *_: (None, None))
    monkeypatch.setattr(
        topic_creation, "_create_route_topics", lambda *given: told.append(given[1].source_topic)
    )
    assert topic_creation.prepare_topics(settings, lambda: told.append("beat")) == copied
    assert told == ["beat", "a", "beat", "b", "beat", "c"]


def test_a_topic_of_the_destination_that_is_deleted_is_created_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was there when the topics were listed, and is gone when its configuration is read: they
    are listed again, which names a source topic that is gone.
    """
    settings = load(GOOD)
    with_it, without_it = SimpleNamespace(settings=settings), SimpleNamespace(settings=settings)
    listed: list[Any] = [with_it, without_it, TopicMissing("orders does not exist")]

    def load_route_topics(_: object) -> Any:
        state = listed.pop(0)
        if isinstance(state, TopicMissing):
            raise state
        return state

    now_s = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    def create_missing(state: object, *_: object) -> Any:
        sleep(settings.connect_timeout_s)  # so long the configuration is asked for
        if state is without_it:
            return {}
        raise TopicMissing("reading the configuration of topic copy-proxy")

    monkeypatch.setattr(topic_creation, "load_route_topics", load_route_topics)
    monkeypatch.setattr(topic_creation, "_create_missing", create_missing)
    monkeypatch.setattr(clock, "sleep", sleep)
    monkeypatch.setattr(clock, "monotonic", lambda: now_s)
    assert topic_creation.prepare_topics(settings) == {}
    listed.insert(0, with_it)
    with pytest.raises(TopicMissing, match="orders does not exist"):
        topic_creation.prepare_topics(settings)
    listed += [with_it] * 100
    with pytest.raises(TopicMissing, match="reading the configuration"):
        topic_creation.prepare_topics(settings)
    assert len(listed) > 90


def test_routes_that_are_prepared_are_not_prepared_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 1,000 topics, one that appears costs a few requests."""
    state = describe_topics(load(GOOD), 1, 1)
    (route,) = state.sources
    prepared: list[Route] = []
    state.parked = {route.parked_topic: state.sources[route]}
    parked: list[str] = []
    monkeypatch.setattr(topic_creation, "prepare_topic", lambda _, new: parked.append(new.topic))
    monkeypatch.setattr(
        topic_creation, "_create_route_topics", lambda _, one, __: prepared.append(one)
    )
    for known in ((), {route}):
        assert topic_creation.create_missing(state, known=known) == state.sources
    assert (prepared, parked) == ([route], [route.parked_topic])


def describe_topics(settings: Settings, partitions: int, brokers: int) -> RouteTopics:
    """None of the destination's topics exists; there is to be one for parked records."""
    (route,) = settings.build_routes()
    source, nobody = Topic(route.source_topic, "id", partitions, "source"), cast(Any, None)
    state = RouteTopics(settings, nobody, nobody, {route: source}, {"parked": source}, {}, brokers)
    config: Any = {LIMIT: SimpleNamespace(value="1000", source=1)}
    state.source_configs[source.name] = config
    return state


def test_a_broker_may_learn_of_a_large_new_topic_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its configuration is asked for longer than that of a topic that exists."""
    waits_s: list[float] = []
    monkeypatch.setattr(topics, "describe_config", lambda *given: waits_s.append(given[-1]))
    settings = load(GOOD)
    for existing in ({}, {"new": Topic("new", "id", 2000, "destination")}):
        state = describe_topics(settings, 2000, 1)
        state.existing = existing
        state.get_config("new")
    assert waits_s == [settings.connect_timeout_s + 100, settings.connect_timeout_s]


@pytest.mark.parametrize(
    ("asked", "brokers", "replicas"),
    [("2", 1, 1), ("2", 2, 2), ("2", 5, 2), ("3", 2, 2), ("3", 5, 3), ("-1", 5, -1)],
)
def test_an_intermediate_topic_has_few_replicas(asked: str, brokers: int, replicas: int) -> None:
    """Not more than there are brokers; and one in sync is enough. Parked records wait for a person:
    they have the replicas of other topics.
    """
    settings = load(GOOD | {"REO_INTERMEDIATE_REPLICATION_FACTOR": asked})
    state = describe_topics(settings, 4, brokers)
    intermediate = topic_creation.build_intermediate_topic(state, *state.sources)
    assert (intermediate.num_partitions, intermediate.replication_factor) == (4, replicas)
    assert intermediate.config["min.insync.replicas"] == "1"
    parked = topic_creation.build_parked_topic(state, "parked")
    assert (parked.num_partitions, parked.replication_factor) == (1, -1)
    assert "min.insync.replicas" not in parked.config


def test_the_check_asks_for_what_a_start_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of the topics exists, so nothing tells which configurations the brokers know: the check
    asks for all of the source's, and leaves out what they say they do not know.
    """
    settings = load(GOOD)
    (route,) = settings.build_routes()
    own = {LIMIT: "1000", "segment.bytes": "16384", "vendor.tier": "on", "vendor.b": "1"}
    config: Any = {
        name: SimpleNamespace(value=value, source=ConfigSource.DYNAMIC_TOPIC_CONFIG)
        for name, value in own.items()
    }
    asked: list[set[str]] = []

    def create(*arguments: Any) -> None:
        new_topic = arguments[2]
        if new_topic.topic == route.destination_topic:
            asked.append(set(new_topic.config))
            unknown = sorted(name for name in new_topic.config if name.startswith("vendor"))
            raise TopicsUnfit(
                f"Unknown topic config name: {unknown[0]}" if unknown else "Invalid value 16384"
            )

    monkeypatch.setattr(topic_creation.TopicCreator, "create_or_extend", create)
    state = describe_topics(settings, 1, 1)
    state.source_configs[route.source_topic] = config
    state.parked.clear()
    errors = [finding.seen for finding in check_topics(state) if finding.level == "error"]
    assert errors == ["Invalid value 16384"]
    left = {LIMIT, "segment.bytes", "message.timestamp.type"}
    assert asked == [left | {"vendor.tier", "vendor.b"}, left | {"vendor.tier"}, left]


def check_group(
    topics_and_partitions: dict[str, int], limit: int, **more: str
) -> list[tuple[str, str]]:
    """The findings for a service of these topics, by the size of the group."""
    settings = load(
        {name: text for name, text in GOOD.items() if "TOPIC" not in name}
        | {"REO_TOPICS": ",".join(topics_and_partitions), "REO_APPLICATION": "many"}
        | {f"REO_DEDUPLICATOR_{name.upper()}": text for name, text in more.items()}
    )
    nobody = cast(Any, None)
    sources = {
        route: Topic(route.source_topic, "id", topics_and_partitions[route.source_topic], "source")
        for route in settings.build_routes()
    }
    state = RouteTopics(settings, nobody, nobody, sources, {}, {}, 1)
    return [(finding.level, finding.seen) for finding in check_group_size(state, limit)]


def test_a_group_that_the_coordinator_cannot_write_is_refused() -> None:
    """Measured on a broker of Kafka 4.3 that took 14,000 bytes: of 60 topics with names of 46
    characters three workers got their partitions, with a fourth nobody had any. A commit of 100
    partitions has 31,000, so the same with five times as many topics, and as much room.
    """
    names = {f"t{number:039}": 1 for number in range(300)}  # and -proxy
    ((level, seen),) = check_group(names, 70_000, workers="3")
    assert (level, "room for 3 workers" in seen) == ("ok", True)
    ((level, seen),) = check_group(names, 70_000, workers="4")
    assert (level, "has room for 3 workers:" in seen) == ("error", True)
    ((level, seen),) = check_group({"a": 100_000}, 1_048_588, workers="64")
    assert (level, "room for more than 1000 workers" in seen) == ("ok", True)
    ((level, seen),) = check_group({"a": 1}, 69_999)
    assert (level, "message.max.bytes is 69999" in seen) == ("error", True)


def test_two_replicas_are_the_default() -> None:
    """With one of their brokers down the copy goes on."""
    assert load(GOOD).intermediate.replication_factor == 2


def test_an_envelope_with_the_largest_record_fits() -> None:
    """What a batch with one record and an envelope around it add is less than the room for it."""
    record = EnvelopeRecord(OFFSET_MAX - 1, 2**62, 1, b"", b"x" * 1000)
    around = len(encode(Head("1d" * 8, 2**63 - 1, 9, -1, OFFSET_MAX - 1), [record])) - 1000
    batch_and_record_bytes = 61 + 15
    assert around + batch_and_record_bytes < 200 < ENVELOPE_EXTRA_BYTES
    state = describe_topics(load(GOOD), 1, 1)
    created = topic_creation.build_intermediate_topic(state, *state.sources)
    assert int(created.config[LIMIT]) == 1000 + ENVELOPE_EXTRA_BYTES
