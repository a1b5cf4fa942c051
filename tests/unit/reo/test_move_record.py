"""The record of a move in a frontier, and the frontier of the copy in the other direction."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from common.errors import MoveRefused
from common.frontier import (
    KEPT,
    TIME_MS_END,
    Frontier,
    LastRecord,
    Move,
    check_not_moved,
    decode,
)
from common.routes import TopicPartition
from common.settings import load
from reo.migration.cutover_back import build_reverse_frontier, build_reverse_settings
from tests.unit.common.test_frontier import GOOD, change_metadata

MOVE = [1_790_000_123_456, "ann@host", 23]


def test_a_topic_that_has_moved_says_when_and_where() -> None:
    """The record is in the metadata only then, so that others have not one byte more; a version
    that does not know it reads the rest.
    """
    assert "mv" not in orjson.loads(GOOD.encode())
    check_not_moved(TopicPartition("orders", 0), GOOD)
    moved = decode(change_metadata(mv=MOVE))
    assert moved == replace(GOOD, move=Move(1_790_000_123_456, "ann@host", 23))
    with pytest.raises(
        MoveRefused,
        match="orders-0 moved on 2026-09-21 14:15:23 UTC, by ann@host, at source offset 18,"
        " destination offset 23: ",
    ):
        check_not_moved(TopicPartition("orders", 0), moved)


@pytest.mark.parametrize(
    "move",
    [
        [],
        MOVE[:2],
        [*MOVE, 1],
        ["1", "ann", 1],
        [-1, "ann", 1],
        [TIME_MS_END, "ann", 1],
        [1, None, 1],
        [1, "ann", -1],
        [1, "ann", 2**63],
        [True, "ann", 1],
        {"a": 1},
        "mv",
        False,
    ],
)
def test_a_wrong_move_is_refused(move: object) -> None:
    """A time that a calendar has, a name and an offset, or null: nothing else."""
    with pytest.raises(ValueError, match="the move"):
        decode(change_metadata(mv=move))


ENDED = Frontier(
    17,
    3,
    "identity-of-a",
    2,
    "topic-of-b",
    destination_known=20,
    sent=0,
    last_record=LastRecord(15, "0123456789abcdef"),
    last_written="0123456789abcdef" + KEPT,
    is_known_written=True,
    move=Move(1_790_000_123_456, "ann@host", 23),
)
EMPTY = replace(ENDED, last_record=None, last_written=None, is_known_written=False)


@pytest.mark.parametrize("ended", [ENDED, EMPTY], ids=["copied", "without a record"])
def test_a_copy_in_the_other_direction_begins_where_the_first_has_ended(ended: Frontier) -> None:
    """What is at the source there was copied; the last record is the same, at the offsets of
    either side. Exchanged once more it is the first one.
    """
    there = build_reverse_frontier(ended, "identity-of-b", "topic-of-a", 7)
    assert (there.source_offset, there.epoch) == (22, 7)
    assert (there.source_identity, there.destination_topic_id) == ("identity-of-b", "topic-of-a")
    if ended is ENDED:
        assert there.last_record == LastRecord(20, "0123456789abcdef")
        assert (there.destination_known, there.is_known_written) == (15, True)
    else:
        assert (there.last_record, there.is_known_written) == (None, False)
        assert there.destination_known == 17, "where it ends"
    again = build_reverse_frontier(
        replace(there, move=Move(1, "bob", 18)), "identity-of-a", "topic-of-b", 3
    )
    assert again.source_offset == 17
    if ended is ENDED:
        assert again == replace(ended, move=None)


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        (
            {"REO_SOURCE_TOPIC": "orders", "REO_DESTINATION_TOPIC": "copy"},
            [("copy", "orders", "orders-proxy")],
        ),
        ({"REO_SOURCE_TOPIC": "orders"}, [("orders", "orders", "orders-proxy")]),
        (
            {"REO_TOPICS": "orders=copy,shops", "REO_APPLICATION": "reo"},
            [("copy", "orders", "orders-proxy"), ("shops", "shops", "shops-proxy")],
        ),
    ],
)
def test_the_settings_are_those_with_the_sides_exchanged(
    topics: dict[str, str], expected: list[tuple[str, str, str]]
) -> None:
    """Addresses, credentials and topics."""
    settings = load(
        {
            "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1",
            "REO_SOURCE_SECURITY_PROTOCOL": "SASL_SSL",
            "REO_SOURCE_SASL_MECHANISM": "PLAIN",
            "REO_SOURCE_SASL_USERNAME": "ann",
            "REO_SOURCE_SASL_PASSWORD": "secret",
            "REO_SOURCE_START": "latest",
            "REO_DESTINATION_BOOTSTRAP_SERVERS": "b:1",
            **topics,
        }
    )
    routes = settings.build_routes()
    reverse = build_reverse_settings(settings, routes)
    assert [
        (route.source_topic, route.destination_topic, route.intermediate_topic)
        for route in reverse.build_routes()
    ] == expected
    assert reverse.source_cluster.bootstrap_servers == "b:1"
    assert reverse.destination_cluster.security == settings.source_cluster.security
    assert not reverse.source_cluster.security.has_sasl
    assert (reverse.start.kind, reverse.source.mode) == ("earliest", "single")
    back = build_reverse_settings(reverse, reverse.build_routes())
    assert set(back.build_routes()) == set(routes)
