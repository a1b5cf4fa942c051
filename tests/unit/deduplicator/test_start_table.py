"""The tables of a start: each row decides where it holds and none before it does. What a row does
not need is not asked: the partitions here have nothing else.
"""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any, cast

import pytest

from deduplicator.frontiers.found_partition import FoundPartition
from deduplicator.frontiers.start_table import BEGINNING, START, find_row

NO_FRONTIER: dict[str, object] = {"frontier": None}
FILLED = NO_FRONTIER | {"filled": "orders-0", "has_begun_since": False}
FRONTIER: dict[str, object] = {"frontier": "a frontier", "has_moved": False, "is_lost": False}
STARTS: dict[str, dict[str, object]] = {
    "a frontier of a topic that has moved": FRONTIER | {"has_moved": True},
    "a frontier that the group has lost": FRONTIER | {"is_lost": True},
    "a frontier": FRONTIER,
    "no records": NO_FRONTIER | {"filled": None},
    "records of a worker that has begun since": FILLED | {"has_begun_since": True},
    "records to append to": FILLED | {"may_append": True},
    "records of other sources": FILLED | {"may_append": False, "is_from_other_sources": True},
    "records that may be its own": FILLED | {"may_append": False, "is_from_other_sources": False},
}
LATEST: dict[str, object] = {
    "starts_at_latest": True,
    "is_added": False,
    "commit": None,
    "is_new_topic": False,
    "may_append": False,
    "has_other_topics": False,
}
FIRST = LATEST | {"topic_frontiers": [], "is_started": False}
BEGINNINGS: dict[str, dict[str, object]] = {
    "another start than latest": {"starts_at_latest": False},
    "a partition that the source had not then": LATEST | {"is_added": True},
    "a destination that was recreated": LATEST | {"commit": "of the deleted one"},
    "a topic that appeared since": LATEST | {"is_new_topic": True},
    "records to append to": LATEST | {"may_append": True, "filled": "orders-0"},
    "frontiers of other topics": LATEST | {"has_other_topics": True},
    "a copied topic": FIRST | {"topic_frontiers": ["another"], "is_written": True},
    "lost frontiers": FIRST | {"is_started": True},
    "whatever others have copied": FIRST | {"may_append": True, "filled": None},
    "envelopes of its topic": FIRST | {"is_written": True},
    "copies of its topic": FIRST | {"is_written": False, "has_copies": True},
    "the first start": FIRST | {"is_written": False, "has_copies": False},
}
ROWS = [
    pytest.param(table, cases[row.found], row, id=row.found)
    for table, cases in ((START, STARTS), (BEGINNING, BEGINNINGS))
    for row in cast(Any, table)
]


@pytest.mark.parametrize(("table", "conditions", "row"), ROWS)
def test_a_row_is_found(table: Any, conditions: dict[str, object], row: object) -> None:
    """By its own condition."""
    assert find_row(table, cast(Any, SimpleNamespace(**conditions))) is row


def test_a_first_start_that_is_not_over_begins_where_it_would_have() -> None:
    """Other partitions of the topic have frontiers, and no run has begun: also where the service
    had these when this process began.
    """
    conditions = FIRST | {
        "topic_frontiers": ["another"],
        "is_started": True,
        "is_written": False,
        "has_copies": False,
    }
    row = find_row(BEGINNING, cast(Any, SimpleNamespace(**conditions)))
    assert row.found == "the first start"


def test_every_condition_is_one_of_a_partition() -> None:
    """So that the conditions here are those of the service."""
    names = set(inspect.get_annotations(FoundPartition)) | set(dir(FoundPartition))
    names |= set(FoundPartition.__init__.__code__.co_names)
    conditions = [*STARTS.values(), *BEGINNINGS.values()]
    assert {name for one in conditions for name in one} <= names
