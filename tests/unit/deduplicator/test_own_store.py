"""A destination of a user's own: what its page's example promises, and settings that do not go with
it. With workers on a real broker: `tests/broker/test_own_destination.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from common.errors import SettingsInvalid
from common.routes import TopicPartition
from common.settings import load
from deduplicator.own_destination import NotOwner, Position, StoredRecord
from tests.harness.own_store import open_store, write_example
from tests.unit.common.settings.test_settings import GOOD

OWN = {"REO_DESTINATION_CLASS": "tests.harness.filter_functions:every"}


def test_an_earlier_owner_stores_nothing(tmp_path: Path) -> None:
    """The example keeps the protocol's promise: after `take_over` by another instance a commit is
    refused, and nothing of it is stored.
    """
    write_example(tmp_path)
    tp, record = TopicPartition("t-proxy", 0), StoredRecord("t", 0, 5, b"k", None, [], 1)
    first, second = open_store(tmp_path), open_store(tmp_path)
    assert first.take_over([tp]) == {}
    first.commit([record], {tp: Position(1, "one")})
    assert second.take_over([tp]) == {tp: Position(1, "one")}
    with pytest.raises(NotOwner):
        first.commit([record._replace(source_offset=6)], {tp: Position(2, "two")})
    assert second.last_source_offset(TopicPartition("t", 0)) == 5
    assert second.take_over([tp]) == {tp: Position(1, "one")}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"REO_DESTINATION_CLASS": "nothing"},
            "REO_DESTINATION_CLASS: module:Class is expected, not 'nothing'",
        ),
        (
            {"REO_DESTINATION_POSTGRESQL": "host=x"},
            "REO_DESTINATION_POSTGRESQL and REO_DESTINATION_CLASS: records go to one of them",
        ),
        ({"REO_SOURCE_MODE": "failover"}, "REO_DESTINATION_CLASS and REO_SOURCE_MODE=failover"),
        ({"REO_TOPICS_SYNC": "retention.ms"}, "REO_DESTINATION_CLASS and REO_TOPICS_SYNC"),
        ({"REO_OFFSETS_SYNC_GROUPS": ".*"}, "REO_DESTINATION_CLASS and REO_OFFSETS_SYNC_GROUPS"),
        (
            {"REO_DESTINATION_CLASS": "", "REO_DESTINATION_OPTIONS": '{"a": 1}'},
            "REO_DESTINATION_OPTIONS would not be used: REO_DESTINATION_CLASS is not set",
        ),
        ({"REO_DESTINATION_OPTIONS": "a=1"}, "REO_DESTINATION_OPTIONS: a JSON object like"),
    ],
)
def test_what_does_not_go_with_it_is_refused(changes: dict[str, str], words: str) -> None:
    """Before anything is opened."""
    with pytest.raises(SettingsInvalid) as refused:
        load(GOOD | OWN | changes)
    assert words in str(refused.value)
