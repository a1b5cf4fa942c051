"""kafka-topic-mirror's environment is taken; a name without prefix that is another program's
changes nothing, or is a contradiction that is named.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from common.settings import is_ours, load
from tests.unit.common.kafka.test_client_options import read_refusal
from tests.unit.common.settings.test_settings import GOOD

MIRROR = {
    "INPUT_TOPIC": "orders",
    "INPUT_BROKERS": "a:1,b:2",
    "OUTPUT_TOPIC": "copy",
    "OUTPUT_BROKERS": "c:3",
}


def test_all_its_names_are_taken() -> None:
    """Each has its place, and a child process is handed the same."""
    loaded = load(
        MIRROR
        | {
            "CONSUMER_GROUP": "group",
            "CLIENT_ID": "client",
            "NEWEST_OFFSET": "true",
            "PROM_SERVER_ADDR": "127.0.0.1:9095",
            "MAX_PUBLISH": "7",
        }
    )
    assert (loaded.source_topic, loaded.source_cluster.bootstrap_servers) == ("orders", "a:1,b:2")
    assert (loaded.destination_topic, loaded.destination_cluster.bootstrap_servers) == (
        "copy",
        "c:3",
    )
    assert (loaded.application, loaded.client_id, loaded.source.start) == (
        "group",
        "client",
        "latest",
    )
    assert (loaded.metrics.address, loaded.metrics.port) == ("127.0.0.1", 9095)
    assert load(loaded.build_environment()).values == loaded.values


@pytest.mark.parametrize(
    ("newest", "start"),
    [
        ("true", "latest"),
        ("1", "latest"),
        ("false", "earliest"),
        ("0", "earliest"),
        ("", "earliest"),
    ],
)
def test_newest_offset_is_a_beginning(newest: str, start: str) -> None:
    """As Go reads a boolean; none is the earliest record, so that nothing is left out unsaid."""
    assert load(MIRROR | {"NEWEST_OFFSET": newest}).source.start == start


def test_empty_names_are_not_given() -> None:
    """Its example has CLIENT_ID and CONSUMER_GROUP empty."""
    loaded = load(MIRROR | {"CONSUMER_GROUP": "", "CLIENT_ID": "", "PROM_SERVER_ADDR": ""})
    assert (loaded.application, loaded.client_id, loaded.metrics.port) == (
        "reo-copy",
        "reo-copy",
        7081,
    )


@pytest.mark.parametrize(
    "stray",
    [
        {"CONSUMER_GROUP": "other"},
        {"CLIENT_ID": "login"},
        {"INPUT_TOPIC": "x", "CONSUMER_GROUP": "other", "NEWEST_OFFSET": "what"},
        {"OUTPUT_TOPIC": "x", "PROM_SERVER_ADDR": "nonsense"},
    ],
)
def test_another_programs_names_change_nothing(stray: dict[str, str]) -> None:
    """Without both topics it is not kafka-topic-mirror's environment: another consumer group would
    leave a copy without its frontier.
    """
    assert load(GOOD | stray).values == load(GOOD).values


@pytest.mark.parametrize(
    ("ours", "name"),
    [
        ({"REO_SOURCE_TOPIC": "other"}, "INPUT_TOPIC and REO_SOURCE_TOPIC"),
        ({"KAFKA_CLUSTERS_DESTINATION_TOPIC": "other"}, "OUTPUT_TOPIC and KAFKA_CLUSTERS_DEST"),
        (
            {"REO_APPLICATION": "other", "CONSUMER_GROUP": "group"},
            "CONSUMER_GROUP and REO_APPLICATION",
        ),
        (
            {"REO_METRICS_PORT": "1", "PROM_SERVER_ADDR": ":2"},
            "PROM_SERVER_ADDR and REO_METRICS_PORT",
        ),
        (
            {"REO_SOURCE_START": "earliest", "NEWEST_OFFSET": "true"},
            "NEWEST_OFFSET and REO_SOURCE_START",
        ),
    ],
)
def test_a_contradiction_is_named(ours: dict[str, str], name: str) -> None:
    """Which of two was meant cannot be known; equal ones are no contradiction."""
    message = read_refusal(MIRROR | ours)
    assert name in message
    assert "contradict each other" in message
    assert load(MIRROR | {"REO_SOURCE_TOPIC": "orders"}).source_topic == "orders"


def test_a_contradiction_with_the_file_is_named(tmp_path: Path) -> None:
    """Other variables win over the file; a name without prefix does not. A list of brokers in the
    file says the same as a text.
    """
    file = tmp_path / "reo.yaml"
    file.write_text("source:\n  bootstrap_servers: ['a:1', 'b:2']\nmetrics:\n  port: 9095\n")
    assert load(MIRROR | {"PROM_SERVER_ADDR": ":9095"}, str(file)).metrics.port == 9095
    assert "PROM_SERVER_ADDR and" in read_refusal(MIRROR | {"PROM_SERVER_ADDR": ":9096"}, str(file))


def test_the_command_line_wins_over_its_names() -> None:
    """As over every variable; and a child process, which is handed what won, is not left the others
    to contradict it.
    """
    assert load(MIRROR, None, {"source.topic": "mine"}).source_topic == "mine"
    assert all(
        is_ours(name)
        for name in (*MIRROR, "CONSUMER_GROUP", "CLIENT_ID", "NEWEST_OFFSET", "PROM_SERVER_ADDR")
    )


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"NEWEST_OFFSET": "perhaps"}, "NEWEST_OFFSET: true or false is expected"),
        ({"PROM_SERVER_ADDR": "9095"}, "PROM_SERVER_ADDR: host:port or :port"),
        ({"PROM_SERVER_ADDR": ":70000"}, "PROM_SERVER_ADDR: a whole number from 0 to 65535"),
        ({"INPUT_BROKERS": ""}, "KAFKA_CLUSTERS_SOURCE_BOOTSTRAP_SERVERS is missing"),
        (
            {"OUTPUT_TOPIC": ""},
            "(INPUT_TOPIC is ignored without OUTPUT_TOPIC: it may be another program's)",
        ),
    ],
)
def test_what_is_wrong_with_them_is_said(change: dict[str, str], part: str) -> None:
    """By its own name, once; and why half of an environment is not taken."""
    message = read_refusal(MIRROR | change)
    assert part in message
    assert message.count(part) == 1 or "OUTPUT_TOPIC" in change
