"""What `reo inspect` prints of topics that have nothing to print, or are purged while it reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from common.errors import ClusterUnreachable, StageFailed
from common.kafka import partition_offsets, source_topics, topics, visible_records
from common.routes import TopicPartition
from common.settings import load
from reo.progress import inspect
from reo.progress.inspect import format_text
from tests.unit.common.settings.test_settings import GOOD
from tests.unit.reo.test_alignment import Message

ROW = {"topic": "b-proxy", "partition": 0, "offset": 7, "bytes": 9, "old_format": True}


def test_a_topic_without_envelopes_is_said() -> None:
    """That of a healthy copy: stage two deletes what is copied. There is no table without rows."""
    empty = "nothing on a-proxy: what is copied is deleted"
    assert format_text([], ["a-proxy"], None, with_records=False) == empty
    assert format_text([], ["a-proxy"], None, with_records=True) == empty
    topics = ["a-proxy", "b-proxy"]
    titles, row, line = format_text([ROW], topics, None, with_records=False).splitlines()
    assert titles.startswith("intermediate ")
    assert row.startswith("b-proxy-0 ")
    assert line == empty


def test_nothing_from_an_offset_on_is_not_called_deleted() -> None:
    """The topic can have envelopes before it."""
    assert format_text([], ["a-proxy"], 7, with_records=False) == (
        "nothing on a-proxy from offset 7 on"
    )


@pytest.mark.parametrize(
    ("read_before", "begin", "seen"),
    [
        pytest.param(0, 3, [3, 4], id="before the first one"),
        pytest.param(1, 3, [0, 3], id="between two of them"),
        pytest.param(1, 6, [0], id="all of them"),
    ],
)
def test_what_is_purged_meanwhile_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, read_before: int, begin: int, seen: list[int]
) -> None:
    """Stage two deletes what is copied; there are offsets 0 to 4, and two are asked for. The same
    error for another reason ends the command.
    """
    begins = {"now": begin}

    def read_visible(_: object, at: dict[TopicPartition, int], __: object) -> Iterator[Message]:
        (first,) = at.values()
        for offset in range(first, 5):
            if offset < begin and offset - first >= read_before:
                raise StageFailed("offset out of range")
            yield Message("x", offset)

    monkeypatch.setattr(visible_records, "read_visible", read_visible)
    monkeypatch.setattr(
        partition_offsets,
        "list_beginning_offsets",
        lambda _, tps: dict.fromkeys(tps, begins["now"]),
    )

    def read() -> list[int]:
        none = cast(Any, None)
        return [
            record.offset()
            for record in inspect._read(none, none, TopicPartition("a-proxy", 0), range(5), 2)
        ]

    assert read() == seen
    begins["now"] = 0
    with pytest.raises(StageFailed):
        read()


def test_a_cluster_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by every command."""

    def fail(*_: object) -> None:
        raise ClusterUnreachable("the destination cluster does not answer")

    settings = load(GOOD)
    monkeypatch.setattr(inspect, "create_admin_clients", lambda _: (None, None))
    monkeypatch.setattr(source_topics, "list_routes", lambda *_: settings.build_routes())
    monkeypatch.setattr(topics, "ask_cluster", fail)
    with pytest.raises(ClusterUnreachable):
        inspect.list_partitions(settings, None)
