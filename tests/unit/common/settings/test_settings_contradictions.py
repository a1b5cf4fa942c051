"""Settings that are right one by one and wrong together, and names that no broker would take."""

from __future__ import annotations

import pytest

from common.settings import load
from tests.unit.common.settings.test_settings import GOOD, read_refusal


def test_two_names_of_one_setting_may_agree_and_must_not_differ() -> None:
    """Which of two different values was meant cannot be known; two equal ones say the same."""
    alias = "KAFKA_CLUSTERS_SOURCE_TOPIC"
    assert load(GOOD | {alias: "orders"}).source_topic == "orders"
    message = read_refusal(GOOD | {alias: "other"})
    assert alias in message
    assert "contradict each other" in message


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        (
            {"REO_INTERMEDIATE_TOPIC": "orders"},
            "REO_INTERMEDIATE_TOPIC and REO_DESTINATION_TOPIC are both 'orders'",
        ),
        (
            {
                "REO_DESTINATION_BOOTSTRAP_SERVERS": "a:1",
                "REO_INTERMEDIATE_TOPIC": "orders",
                "REO_DESTINATION_TOPIC": "copy",
            },
            "REO_INTERMEDIATE_TOPIC and REO_SOURCE_TOPIC are both 'orders'",
        ),
        ({"REO_SOURCE_TOPIC": "with space"}, "is not a legal topic name"),
        ({"REO_SOURCE_TOPIC": ".."}, "is not a legal topic name"),
        ({"REO_SOURCE_TOPIC": "x" * 250}, "is not a legal topic name"),
        ({"REO_SOURCE_TOPIC": "x" * 249}, "REO_INTERMEDIATE_TOPIC"),
        (
            {"REO_DEDUPLICATOR_SESSION_TIMEOUT_MS": "20001"},
            "is longer than REO_DEDUPLICATOR_TRANSACTION_TIMEOUT_MS",
        ),
        ({"REO_SCHEMAS_SOURCE_URL": "http://a"}, "REO_SCHEMAS_DESTINATION_URL belong together"),
        *(
            (
                {"REO_SCHEMAS_SOURCE_URL": "http://a", "REO_SCHEMAS_DESTINATION_URL": url},
                "REO_SCHEMAS_DESTINATION_URL: https://user:password@host:port/path is expected",
            )
            for url in ("a:8081", "ftp://a", "http://", "http://[::1", "http://a:port")
        ),
        ({"REO_PRODUCER_ACKS": "1"}, "one of all, -1 is expected"),
        ({"REO_SOURCE_TOPIC": ""}, "REO_SOURCE_TOPIC or KAFKA_CLUSTERS_SOURCE_TOPIC is missing"),
        ({"REO_SOURCE_BOOTSTRAP_SERVERS": ""}, "must not be empty"),
        *(
            (
                {"REO_REPLICATOR_MASTER": master},
                "REO_REPLICATOR_MASTER: spark://host:port or k8s://https://host:port is expected",
            )
            for master in ("yarn", "local[4]", "spark://host", "k8s://host:6443", "k8s://")
        ),
        (
            {"REO_REPLICATOR_MASTER": "k8s://https://host:6443"},
            "replicator.spark_options: spark.kubernetes.container.image is missing",
        ),
        (
            {"REO_FILTER_FUNCTION": "no_such_thing"},
            "REO_FILTER_FUNCTION: module:function is expected",
        ),
        (
            {"REO_PROVENANCE_HEADER": "via", "REO_SOURCE_MODE": "failover"},
            "REO_PROVENANCE_HEADER and REO_SOURCE_MODE=failover",
        ),
        ({"REO_PROVENANCE_HEADER": "__origin"}, "REO_PROVENANCE_HEADER may not begin with __"),
        ({"REO_REPLICATOR_MEMORY_MB": "511"}, "REO_REPLICATOR_MEMORY_MB: a whole number from 512"),
        ({"REO_FILTER_ON_ERROR": "park"}, "there is no REO_FILTER_FUNCTION that could fail"),
    ],
)
def test_what_contradicts_itself_is_refused(changes: dict[str, str], part: str) -> None:
    """Values that are right one by one and wrong together, and names that no broker would take."""
    assert part in read_refusal(GOOD | changes)


def test_the_same_topic_on_two_clusters_is_no_contradiction() -> None:
    """The ordinary case: only names on the same cluster can collide. (The source cluster may well
    have a topic like ours.)
    """
    assert (
        load(
            GOOD | {"REO_DESTINATION_TOPIC": "copy", "REO_INTERMEDIATE_TOPIC": "orders"}
        ).intermediate_topic
        == "orders"
    )


def test_a_cycle_by_another_spelling_is_left_to_the_clusters() -> None:
    """Whether two addresses are one cluster only the clusters know:
    `topic_creation.prepare_topics` asks them; the settings pass.
    """
    assert load(GOOD | {"REO_DESTINATION_BOOTSTRAP_SERVERS": "a:1"}).destination_topic == "orders"


@pytest.mark.parametrize(
    ("more", "part"),
    [
        (
            {"REO_OFFSETS_SYNC_GROUPS": "("},
            "REO_OFFSETS_SYNC_GROUPS: '(' is not a regular expression",
        ),
        (
            {"REO_OFFSETS_SYNC_GROUPS": ".*", "REO_FILTER_SQL": "true"},
            "REO_OFFSETS_SYNC_GROUPS and REO_FILTER_SQL",
        ),
        (
            {"REO_OFFSETS_SYNC_GROUPS": ".*", "REO_DESTINATION_CLASS": "a:B"},
            "REO_DESTINATION_CLASS and REO_OFFSETS_SYNC_GROUPS",
        ),
    ],
)
def test_what_cannot_be_kept_translated_is_refused(more: dict[str, str], part: str) -> None:
    """At the start, by the setting's name."""
    assert part in read_refusal(GOOD | more)


@pytest.mark.parametrize(
    ("names", "part"),
    [
        (
            "retention.ms,unclean.leader.election.enable",
            (
                "'unclean.leader.election.enable' cannot be kept alike (an unclean election at the"
                " destination would"
            ),
        ),
        (
            "retention.m",
            "REO_TOPICS_SYNC: 'retention.m' cannot be kept alike. It takes cleanup.policy, ",
        ),
    ],
)
def test_what_cannot_be_kept_in_sync_is_refused(names: str, part: str) -> None:
    """At the start, with what can."""
    assert part in read_refusal(GOOD | {"REO_TOPICS_SYNC": names})
