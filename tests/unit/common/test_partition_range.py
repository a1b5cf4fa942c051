"""Ranges of partitions: how a rule writes them, the partitions that a route then has on each side,
and what is refused (`common.partition_range`, `common.topic_rules`).
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from common import topic_rules
from common.errors import SettingsInvalid, TopicsUnfit
from common.kafka import source_topics, topic_fitness
from common.kafka.topics import Topic
from common.partition_range import WHOLE, PartitionRange, parse_intermediate_topic
from common.routes import Route, TopicPartition
from common.settings import load
from deduplicator.frontiers.source_start_offsets import check_start_offsets
from reo.compare import verdict
from reo.migration.moving_topics import refuse_unmovable
from tests.unit.common.test_rules import MANY, load_routes

RANGES = [
    WHOLE,
    *(PartitionRange(first, last) for first in range(4) for last in (*range(first, 5), None)),
]


def load_route(rule: str) -> Route:
    """The route of a rule."""
    (route,) = load_routes(rule)
    return route


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "orders[0-2]",
            Route("orders", "orders", "orders-proxy-0-to-2", partitions=PartitionRange(0, 2)),
        ),
        (
            " orders[3-] = copy ",
            Route("orders", "copy", "copy-proxy-from-3", partitions=PartitionRange(3)),
        ),
        ("orders[0-]", Route("orders", "orders", "orders-proxy")),
        (
            "orders[7-7]=:same",
            Route("orders", "orders", "orders-proxy-7-to-7", partitions=PartitionRange(7, 7)),
        ),
    ],
)
def test_a_rule_has_a_range(text: str, expected: Route) -> None:
    """Both ends are included; without an end, all that follow. The intermediate topic is named
    after it.
    """
    assert load_route(text) == expected


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("r.toml", "[topics]\n'Orders.v1[0-2]' = 'copy'\n'other[3-]' = ''\n"),
        ("r.yaml", "topics:\n  Orders.v1[0-2]: copy\n  other[3-]: ''\n"),
        ("r.json", '{"topics": {"Orders.v1[0-2]": "copy", "other[3-]": ""}}'),
        ("r.ini", "[topics]\nOrders.v1[0-2] = copy\nother[3-] =\n"),
    ],
)
def test_a_settings_file_has_ranges(tmp_path: Path, name: str, content: str) -> None:
    """In each form."""
    (tmp_path / name).write_text(content)
    assert set(load(MANY, str(tmp_path / name)).build_routes()) == {
        Route("Orders.v1", "copy", "copy-proxy-0-to-2", partitions=PartitionRange(0, 2)),
        Route("other", "other", "other-proxy-from-3", partitions=PartitionRange(3)),
    }


def test_brackets_in_a_pattern_are_characters() -> None:
    """As in every regular expression, so a pattern has no range."""
    assert load_routes("^logs-[1-2]", "logs-1", "logs-2", "logs-3") == [
        Route("logs-1", "logs-1", "logs-1-proxy"),
        Route("logs-2", "logs-2", "logs-2-proxy"),
    ]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("orders[0-2],orders[2-5]", "'orders' is named 2 times: a source topic has one rule"),
        ("orders[0-2],orders", "'orders' is named 2 times: a source topic has one rule"),
        ("orders[5-2]", "orders[5-2]: the first partition of a range is not above its last one"),
        ("orders[2]", "'orders[2]' is not a legal topic name"),
        ("orders[a-b]", "A range of partitions is written like orders[0-499] or orders[500-]"),
        ("orders[0-2]=:key", "orders[0-2] → orders:key: a range of partitions is copied without"),
        ("orders[0-2]=copy:3", "a range of partitions is copied without a mapping"),
        ("orders[0-2]=all,other=all", "to a topic to which no other source leads"),
        ("orders[0-2]=all,^logs-.*=all", "to a topic to which no other source leads"),
    ],
)
def test_a_range_that_can_not_be_copied_is_refused_at_once(text: str, part: str) -> None:
    """One error, with the rule."""
    with pytest.raises(SettingsInvalid) as wrong:
        load(MANY | {"REO_TOPICS": text})
    assert part in str(wrong.value)


def test_a_range_is_as_the_set_of_its_partitions() -> None:
    """Which partitions it has, of a topic too, and whether two have one in common; of an endless
    range the first ones are looked at.
    """
    sets = {one: set(range(one.first, 9 if one.last is None else one.last + 1)) for one in RANGES}
    for (one, its), (other, others) in product(sets.items(), repeat=2):
        assert one.overlaps(other) == bool(its & others)
    for one, its in sets.items():
        assert {number for number in range(9) if number in one} == its
        for partitions in range(1, 9):
            assert one.count_in(partitions) == len(its & set(range(partitions)))
            needed = {one.first, one.first if one.last is None else one.last}
            assert one.fits(partitions) == (needed <= set(range(partitions)))


def test_the_name_between_tells_the_range() -> None:
    """And no name of another destination topic's intermediate topic does."""
    for one in RANGES:
        assert parse_intermediate_topic(one.build_intermediate_topic("a.b"), "a.b") == one
        assert topic_rules.TOPIC_NAME.fullmatch(one.build_intermediate_topic("a.b"))
        for other in ("axb", "a", "a.b-0-to-2", "a.b-proxy", "b"):
            assert parse_intermediate_topic(one.build_intermediate_topic(other), "a.b") is None


def test_a_route_translates_partitions() -> None:
    """The numbers of source and destination are the same, those between begin at 0."""
    route = load_route("orders[3-5]=copy")
    assert route.get_intermediate(1) == TopicPartition("copy-proxy-3-to-5", 1)
    assert route.get_source(1) == TopicPartition("orders", 4)
    assert route.get_destination(1) == TopicPartition("copy", 4)
    assert route.find_intermediate(route.get_source(1)) == route.get_intermediate(1)
    assert route.find_destination(route.get_source(1)) == route.get_destination(1)


def limit(rule: str, partitions: int) -> tuple[Route, Topic]:
    """A route, and its source topic with so many partitions."""
    route = load_route(rule)
    return route, source_topics._limit(route, Topic("orders", "id", partitions, "cluster"))


@pytest.mark.parametrize("rule", ["orders[4-6]", "orders[6-]", "orders[6-7]"])
def test_a_range_beyond_the_source_is_refused(rule: str) -> None:
    """Of six partitions. One that ends with the last of them is none of these."""
    with pytest.raises(TopicsUnfit, match="has the partitions 0 to 5"):
        limit(rule, 6)
    assert limit("orders[4-5]", 6)[1].partitions == 2


def test_partitions_that_are_added_are_of_the_open_range() -> None:
    """The other services see no change, so no run of theirs ends."""
    assert [limit("orders[0-2]", count)[1].partitions for count in (6, 8)] == [3, 3]
    assert limit("orders[0-2]", 6)[1] == limit("orders[0-2]", 8)[1]
    assert [limit("orders[3-]", count)[1].partitions for count in (6, 8)] == [3, 5]


@pytest.mark.parametrize(
    ("rule", "now", "then"),
    [
        ("orders[0-2]", 0, 8),
        ("orders[3-]", 0, 8),
        ("orders[0-2]", 6, 3),
        ("orders[3-5]", 6, 6),
        ("orders[3-]", 8, 8),
    ],
)
def test_the_destination_has_all_partitions(rule: str, now: int, then: int) -> None:
    """A new one has those of the source, which are eight; an existing one has to have those of the
    range, and gets no others.
    """
    route, source = limit(rule, 8)
    existing = {"orders": Topic("orders", "id", now, "there")} if now else {}
    assert topic_fitness.count_partitions("orders", {route: source}, existing) == then


def test_a_destination_that_lacks_the_range_is_refused() -> None:
    """As one that lacks partitions of a whole topic."""
    route, source = limit("orders[3-5]", 6)
    with pytest.raises(TopicsUnfit, match="has 5 partitions, the source topic orders 6"):
        topic_fitness.count_partitions(
            "orders", {route: source}, {"orders": Topic("orders", "id", 5, "there")}
        )


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        ("orders[2-3]", "orders-proxy-0-to-2"),
        ("orders[2-3]", "orders-proxy-from-3"),
        ("orders[3-]", "orders-proxy-from-4"),
        ("orders[2-3]", "orders-proxy"),
        ("orders", "orders-proxy-0-to-2"),
        ("orders=:key", "orders-proxy-from-3"),
    ],
)
def test_a_service_that_copies_the_same_partitions_is_noticed(rule: str, name: str) -> None:
    """By the name of its intermediate topic."""
    (error,) = topic_fitness.find_overlaps([load_route(rule)], {name, "orders", "x"})
    assert f"the intermediate topic {name} is that of a service" in str(error)


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        ("orders[2-3]", "orders-proxy-2-to-3"),
        ("orders[2-3]", "orders-proxy-0-to-1"),
        ("orders[2-3]", "orders-proxy-from-4"),
        ("orders[2-3]", "orders-2-proxy"),
        ("orders[2-3]=copy", "orders-proxy-0-to-9"),
        ("orders", "orders-proxy"),
    ],
)
def test_other_services_are_not_in_the_way(rule: str, name: str) -> None:
    """Of other partitions or another destination; and the service's own topic is there."""
    assert not list(topic_fitness.find_overlaps([load_route(rule)], {name}))


def test_two_services_of_whole_topics_are_as_before() -> None:
    """A service that was given another `intermediate.topic` leaves the first one behind."""
    route = load(
        {name: text for name, text in MANY.items() if name != "REO_APPLICATION"}
        | {"REO_SOURCE_TOPIC": "orders", "REO_INTERMEDIATE_TOPIC": "between"}
    ).build_routes()
    assert not list(topic_fitness.find_overlaps(route, {"orders-proxy", "between"}))


def test_start_offsets_are_those_of_the_range() -> None:
    """A partition that another service copies is named for nothing."""
    settings = load(MANY | {"REO_TOPICS": "orders[3-5]", "REO_SOURCE_START": "4=7,2=9"})
    route, source = limit("orders[3-5]", 6)
    with pytest.raises(
        SettingsInvalid, match=r"partition 2 of orders\[3-5\], which has partitions 3 to 5"
    ):
        check_start_offsets(settings, None, {route: source}, ())


def test_a_part_of_a_topic_is_not_moved() -> None:
    """`reo cutover` would stop the producers of all of it."""
    with pytest.raises(SettingsInvalid, match=r"orders\[3-5\]: `reo cutover` moves a topic"):
        refuse_unmovable(load(MANY | {"REO_TOPICS": "other,orders[3-5]"}))
    refuse_unmovable(load(MANY | {"REO_TOPICS": "other,orders"}))


def test_the_verdict_names_the_partitions_of_others() -> None:
    """Before and behind the range."""
    route, source = limit("orders[2-3]", 6)
    assert [part.text for part in verdict.list_for_topics({route: source}, {"orders": 6})] == [
        "partitions 0 to 1 of the destination: the rule has [2-3]",
        "partitions 4 to 5 of the destination: the rule has [2-3]",
    ]
