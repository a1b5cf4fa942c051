"""The settings of a copy to a class: what needs a destination topic is refused, and permissions of
destination topics are not asked for.
"""

from __future__ import annotations

import pytest

from common.errors import SettingsInvalid
from common.kafka import needed_acls
from common.settings import destination_kind, load
from tests.unit.common.settings.test_settings import GOOD

OWN = GOOD | {"REO_DESTINATION_CLASS": "a:B", "REO_DESTINATION_CONNECTION": "host=db p=s3cret"}
SEVERAL = {"REO_SOURCE_TOPIC": "", "REO_APPLICATION": "a"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"REO_DESTINATION_CLASS": "nothing"},
            "REO_DESTINATION_CLASS: module:Class is expected, not 'nothing'",
        ),
        (
            {
                "REO_FILTER_FUNCTION": "tests.harness.filter_functions:none",
                "REO_FILTER_ON_ERROR": "park",
            },
            "REO_DESTINATION_CLASS and REO_FILTER_ON_ERROR=park",
        ),
        ({"REO_PROVENANCE_HEADER": "via"}, "REO_DESTINATION_CLASS and REO_PROVENANCE_HEADER"),
        (
            {"REO_DESTINATION_ZERO_TIMESTAMP": "one"},
            "REO_DESTINATION_ZERO_TIMESTAMP would not be used",
        ),
        (
            {"REO_DESTINATION_PRODUCER_OPTIONS_LINGER_MS": "9"},
            "destination.producer_options would not be used",
        ),
        ({"REO_TOPICS_SYNC": "retention.ms"}, "REO_DESTINATION_CLASS and REO_TOPICS_SYNC"),
        ({"REO_OFFSETS_SYNC_GROUPS": ".*"}, "REO_DESTINATION_CLASS and REO_OFFSETS_SYNC_GROUPS"),
        (
            SEVERAL | {"REO_TOPICS": "a=b:key"},
            "REO_DESTINATION_CLASS and the mapping key: a producer chooses its partitions",
        ),
        *(
            (
                {"REO_DESTINATION_CLASS": "", "REO_DESTINATION_CONNECTION": "", name: value},
                f"{name} would not be used: REO_DESTINATION_CLASS is not set",
            )
            for name, value in (
                ("REO_DESTINATION_OPTIONS", '{"a": 1}'),
                ("REO_DESTINATION_CONNECTION", "s3cret"),
                ("REO_DESTINATION_GUARANTEE", "at-least-once"),
            )
        ),
        (
            {"REO_DESTINATION_OPTIONS": "password=s3cret"},
            "REO_DESTINATION_OPTIONS: a JSON object like",
        ),
    ],
)
def test_what_does_not_go_with_a_class_is_refused(changes: dict[str, str], words: str) -> None:
    """Before anything is opened, and without the secret."""
    with pytest.raises(SettingsInvalid) as refused:
        load(OWN | changes)
    assert words in str(refused.value)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"REO_SOURCE_MODE": "failover", "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1;b:1"},
        SEVERAL | {"REO_TOPICS": "a=c:0,b=c:0"},
        SEVERAL | {"REO_TOPICS": "a=b:tests.harness.filter_functions:every"},
    ],
)
def test_what_a_class_can_take_is_not_refused(changes: dict[str, str]) -> None:
    """Candidates, several sources for one topic, mappings."""
    assert destination_kind.is_outside_kafka(load(OWN | changes))


@pytest.mark.parametrize(
    "variable",
    ["REO_DESTINATION_POSTGRESQL", "REO_DESTINATION_POSTGRESQL_FILE"],
)
def test_the_settings_of_earlier_versions_name_their_successor(variable: str) -> None:
    """One line that says what to write, without the secret."""
    with pytest.raises(SettingsInvalid) as refused:
        load(GOOD | {variable: "password=s3cret"})
    assert f"{variable}: unknown setting: it is destination.class=dedup" in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_permissions_of_topics_are_not_asked_for() -> None:
    """With a class there is no destination topic, and no transactional id."""
    named = [
        {row.named_by for row in needed_acls.list_needed(needed_acls.STAGES, outside_kafka)}
        for outside_kafka in (False, True)
    ]
    assert named[0] - named[1] == {"destination.topic", "application-"}
