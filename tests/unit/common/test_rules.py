"""Rules: the many forms in which topics are named, what they lead to, and that what cannot be
copied side by side is refused with the reason.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from common import topic_rules
from common.errors import SettingsInvalid
from common.routes import Route, TopicPartition
from common.settings import Settings, load

BASE = {"REO_SOURCE_BOOTSTRAP_SERVERS": "a:1", "REO_DESTINATION_BOOTSTRAP_SERVERS": "b:1"}
MANY = BASE | {"REO_APPLICATION": "app"}
AT_SOURCE = ("logs-1", "logs-2", "other", "__consumer_offsets", "xlogs-3")


def load_routes(text: str, *topics: str) -> list[Route]:
    """The routes of a text, with these topics at the source."""
    return load(MANY | {"REO_TOPICS": text}).build_routes(topics or AT_SOURCE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders", [Route("orders", "orders", "orders-proxy")]),
        ("orders=copy", [Route("orders", "copy", "copy-proxy")]),
        (
            " orders = copy , other ",
            [Route("orders", "copy", "copy-proxy"), Route("other", "other", "other-proxy")],
        ),
        ("orders=copy:3", [Route("orders", "copy", "copy-proxy", "3")]),
        ("orders=:key", [Route("orders", "orders", "orders-proxy", "key")]),
        ("orders=copy:same", [Route("orders", "copy", "copy-proxy")]),
        ("orders=copy:os:getcwd", [Route("orders", "copy", "copy-proxy", "os:getcwd")]),
        (
            "^logs-.*",
            [Route("logs-1", "logs-1", "logs-1-proxy"), Route("logs-2", "logs-2", "logs-2-proxy")],
        ),
        (
            r"^logs-([0-9]{1,2})=copy-\1,other",
            [
                Route("logs-1", "copy-1", "copy-1-proxy"),
                Route("logs-2", "copy-2", "copy-2-proxy"),
                Route("other", "other", "other-proxy"),
            ],
        ),
        (r"^(?P<name>.*-1)=copy-\g<name>", [Route("logs-1", "copy-logs-1", "copy-logs-1-proxy")]),
        (
            "^logs-.*=all:3",
            [
                Route("logs-1", "all", "all-logs-1-proxy", "3", True),
                Route("logs-2", "all", "all-logs-2-proxy", "3", True),
            ],
        ),
        (
            "a=all,b=all:key",
            [
                Route("a", "all", "all-a-proxy", shared=True),
                Route("b", "all", "all-b-proxy", "key", True),
            ],
        ),
        ("^nothing.*", []),
    ],
)
def test_a_text_leads_to_routes(text: str, expected: list[Route]) -> None:
    """Names, patterns, destinations and mappings; Kafka's own topics fit no pattern; the
    intermediate topics of a shared destination differ.
    """
    assert load_routes(text) == expected


def test_the_name_between_depends_on_the_rules_alone() -> None:
    """A topic that appears must not rename another route's intermediate topic: its frontier would
    be lost.
    """
    assert (
        load_routes("^logs-.*=all", "logs-1")[0]
        == load_routes("^logs-.*=all", "logs-1", "logs-2")[0]
    )


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a=b,a=c", "'a' is named 2 times"),
        ("a b", "'a b' is not a legal topic name"),
        ("a=b c", "'b c' is not a legal topic name"),
        ("a=..", "'..' is not a legal topic name"),
        ("=b", "'' is not a legal topic name"),
        (":key", "':key' is not a legal topic name"),
        ("a=b:-1", "'-1' is no mapping"),
        ("a=b:keys", "'keys' is no mapping"),
        ("^(a=b", "the pattern '^(a' cannot be used"),
        (r"^a=\2", "the pattern '^a' cannot be used"),
        (r"^a=\g<b>", "the pattern '^a' cannot be used"),
        ("^a=b c", "'b c' is not a legal topic name"),
        (
            "a=b-proxy,b",
            "the intermediate topic of b → b would be 'b-proxy', which is a destination",
        ),
        ("x=a.b,y=a_b", "the topics 'a.b' and 'a_b' collide"),
        ("x=b-c,y=b-c,c-y=b,q=b", "several routes need the intermediate topic 'b-c-y-proxy'"),
        ("x" * 245, "is not a legal topic name"),
    ],
)
def test_what_can_not_be_a_rule_is_refused_at_once(text: str, part: str) -> None:
    """Whatever topics there are: the settings are refused, with the reason."""
    with pytest.raises(SettingsInvalid) as wrong:
        load(MANY | {"REO_TOPICS": text})
    assert part in str(wrong.value)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("other,^.*", "'other' is the source of several rules (other, ^.*)"),
        (r"^(logs-)(.*)=\1copy", "several sources lead to 'logs-copy'"),
        (r"^logs-(.*)=copy-\1,other=copy-1", "several sources lead to 'copy-1'"),
        (r"^logs-(.)=\1 x", "'1 x' is not a legal topic name"),
    ],
)
def test_topics_that_do_not_go_together_are_refused_when_they_are_there(
    text: str, part: str
) -> None:
    """Only the source's topics tell: the refusal comes with them."""
    given = load(MANY | {"REO_TOPICS": text})
    with pytest.raises(SettingsInvalid) as wrong:
        given.build_routes(AT_SOURCE)
    assert part in str(wrong.value)


@pytest.mark.parametrize(
    ("more", "part"),
    [
        ({"REO_SOURCE_TOPIC": "x"}, "REO_TOPICS and REO_SOURCE_TOPIC contradict each other"),
        (
            {"REO_INTERMEDIATE_TOPIC": "x", "REO_DESTINATION_TOPIC": "y"},
            "REO_TOPICS and REO_DESTINATION_TOPIC, REO_INTERMEDIATE_TOPIC contradict each other",
        ),
        ({"REO_APPLICATION": ""}, "REO_APPLICATION is missing"),
    ],
)
def test_the_two_forms_are_not_mixed(more: dict[str, str], part: str) -> None:
    """Several topics or one; and no group is guessed for several."""
    with pytest.raises(SettingsInvalid) as wrong:
        load(MANY | {"REO_TOPICS": "a"} | more)
    assert part in str(wrong.value)


def test_nothing_to_copy_is_an_error() -> None:
    """Neither form was used."""
    with pytest.raises(
        SettingsInvalid, match=r"REO_SOURCE_TOPIC or KAFKA_CLUSTERS_SOURCE_TOPIC.*REO_TOPICS"
    ):
        load(BASE)


def test_the_one_topic_form_is_a_rule_too() -> None:
    """With its own names."""
    assert load(BASE | {"REO_SOURCE_TOPIC": "a"}).build_routes() == [Route("a", "a", "a-proxy")]
    given = {
        "REO_SOURCE_TOPIC": "a",
        "REO_DESTINATION_TOPIC": "b",
        "REO_INTERMEDIATE_TOPIC": "between",
    }
    assert load(BASE | given).build_routes() == [Route("a", "b", "between")]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (
            "r.toml",
            (
                "[topics]\n\"Orders.v1\" = 'copy:3'\nother = ''\n'^logs-(.*)' ="
                " 'copy-\\1'\nreplication_factor = 1\n"
            ),
        ),
        (
            "r.yaml",
            (
                "topics:\n  Orders.v1: 'copy:3'\n  other: ''\n  '^logs-(.*)': 'copy-\\1'\n "
                " replication_factor: 1\n"
            ),
        ),
        (
            "r.json",
            (
                '{"topics": {"Orders.v1": "copy:3", "other": "", "^logs-(.*)": "copy-\\\\1",'
                ' "replication_factor": 1}}'
            ),
        ),
        (
            "r.ini",
            (
                "[topics]\nOrders.v1 = copy:3\nother =\n^logs-(.*) = copy-\\1\nreplication_factor"
                " = 1\n"
            ),
        ),
    ],
)
def test_a_settings_file_has_a_table(tmp_path: Path, name: str, content: str) -> None:
    """`source = "destination:mapping"` in each form, upper and lower case kept, dots in names; the
    section's own setting stays one.
    """
    file = tmp_path / name
    file.write_text(content)
    loaded = load(MANY, str(file))
    assert set(loaded.build_routes(["logs-7"])) == {
        Route("Orders.v1", "copy", "copy-proxy", "3"),
        Route("other", "other", "other-proxy"),
        Route("logs-7", "copy-7", "copy-7-proxy"),
    }
    assert loaded.topics.replication_factor == 1
    assert load_as_child(loaded).rules == loaded.rules


def load_as_child(given: Settings) -> Settings:
    """What a child process makes of them."""
    return load(given.build_environment())


def test_a_table_with_a_number_for_a_destination_is_refused(tmp_path: Path) -> None:
    """What was meant by `a = 3` is not known."""
    file = tmp_path / "r.toml"
    file.write_text("[topics]\na = 3\n")
    with pytest.raises(SettingsInvalid, match="put it in quotes"):
        load(MANY, str(file))


def test_only_a_route_by_itself_is_one_to_one() -> None:
    """A mapping, or company at the destination, ends it."""
    assert [route.is_one_to_one for route in load_routes("a=x,b=y:key,c=z,d=z,e=w:0")] == [
        True,
        False,
        False,
        False,
        False,
    ]


def test_a_partition_is_called_as_kafka_calls_it() -> None:
    """In messages and logs, and it is found under a plain tuple, which is what the compiled path
    makes.
    """
    assert f"{TopicPartition('orders', 3)} {[TopicPartition('orders', 3)]}" == "orders-3 [orders-3]"
    assert {TopicPartition("orders", 3): 1}[("orders", 3)] == 1


def test_an_empty_text_has_no_rules() -> None:
    """Commas alone name nothing."""
    assert topic_rules.parse(" , ,") == ()
