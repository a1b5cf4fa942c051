"""The settings of a copy to PostgreSQL: what does not go with tables is refused, and permissions of
destination topics are not asked for.
"""

from __future__ import annotations

import pytest

from common.errors import SettingsInvalid
from common.kafka import needed_acls
from common.settings import destination_kind, load
from tests.unit.common.settings.test_settings import GOOD

TO_TABLES = GOOD | {"REO_DESTINATION_POSTGRESQL": "host=db password=s3cret"}


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        (
            {"REO_DESTINATION_POSTGRESQL": "s3cret"},
            "REO_DESTINATION_POSTGRESQL: a connection string of libpq is expected",
        ),
        (
            {
                "REO_FILTER_FUNCTION": "tests.harness.filter_functions:none",
                "REO_FILTER_ON_ERROR": "park",
            },
            "REO_DESTINATION_POSTGRESQL and REO_FILTER_ON_ERROR=park",
        ),
        (
            {"REO_SOURCE_MODE": "failover"},
            "REO_DESTINATION_POSTGRESQL and REO_SOURCE_MODE=failover",
        ),
        ({"REO_PROVENANCE_HEADER": "via"}, "REO_DESTINATION_POSTGRESQL and REO_PROVENANCE_HEADER"),
        (
            {"REO_DESTINATION_ZERO_TIMESTAMP": "one"},
            "REO_DESTINATION_ZERO_TIMESTAMP would not be used",
        ),
        (
            {"REO_DESTINATION_PRODUCER_OPTIONS_LINGER_MS": "9"},
            "destination.producer_options would not be used",
        ),
        ({"REO_DESTINATION_TOPIC": "x" * 64}, "is longer than 63 bytes"),
        ({"REO_DESTINATION_TOPIC": "reo_frontier"}, "is the table with the frontiers"),
        (
            {"REO_DESTINATION_POSTGRESQL_SCHEMA": ""},
            "REO_DESTINATION_POSTGRESQL_SCHEMA: a name of 1 to 63 bytes",
        ),
        *(
            (
                {"REO_SOURCE_TOPIC": "", "REO_APPLICATION": "a", "REO_TOPICS": rules},
                "REO_DESTINATION_POSTGRESQL and a mapping, or a destination of several sources",
            )
            for rules in ("a=b:key", "a=c,b=c", "^a.*=b")
        ),
    ],
)
def test_what_does_not_go_with_tables_is_refused(changes: dict[str, str], part: str) -> None:
    """With the setting's name, and without the password."""
    with pytest.raises(SettingsInvalid) as wrong:
        load(TO_TABLES | changes)
    assert part in str(wrong.value)
    assert "s3cret" not in str(wrong.value)


def test_a_schema_without_a_database_is_refused() -> None:
    """It would not be used."""
    with pytest.raises(SettingsInvalid, match=r"REO_DESTINATION_POSTGRESQL is not set"):
        load(GOOD | {"REO_DESTINATION_POSTGRESQL_SCHEMA": "copies"})


def test_permissions_of_topics_are_not_asked_for() -> None:
    """With tables there is no destination topic, and no transactional id."""
    assert destination_kind.is_postgresql(load(TO_TABLES))
    named = [
        {row.named_by for row in needed_acls.list_needed(needed_acls.STAGES, to_tables)}
        for to_tables in (False, True)
    ]
    assert named[0] - named[1] == {"destination.topic", "application-"}
