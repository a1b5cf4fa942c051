"""Reading up to an end: a broker that has fewer records than another one has told does not end it
(`common.kafka.visible_records`).
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError

from common import clock
from common.errors import ClusterUnreachable
from common.kafka import visible_records
from common.routes import TopicPartition

TP = TopicPartition("orders", 0)
EOF, OUT_OF_RANGE = KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET


class Reader:
    """A consumer that gets these answers, each an offset and an error code, 0 for a record; then
    nothing more. A second passes for each.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: tuple[int, int]) -> None:
        self.answers = deque(answers)
        self.now_s = 0.0
        self.markers_until_s = 0.0
        """Up to then it passes markers, one a second."""
        monkeypatch.setattr(clock, "monotonic", lambda: self.now_s)

    def assign(self, _: object) -> None:
        """As Consumer.assign."""

    def unassign(self) -> None:
        """As Consumer.unassign."""

    def poll(self, _: float) -> Any:
        """As Consumer.poll."""
        self.now_s += 1
        if not self.answers:
            return None
        offset, code = self.answers.popleft()
        return SimpleNamespace(
            topic=lambda: TP.topic,
            partition=lambda: TP.partition,
            offset=lambda: offset,
            error=lambda: SimpleNamespace(code=lambda: code) if code else None,
        )

    def position(self, _: object) -> list[Any]:
        """As Consumer.position."""
        return [SimpleNamespace(offset=int(min(self.now_s, self.markers_until_s)))]

    def consume(self, _: int, seconds: float) -> list[Any]:
        """As Consumer.consume."""
        message = self.poll(seconds)
        return [] if message is None else [message]


@pytest.mark.parametrize(
    ("answers", "first_visible"),
    [
        pytest.param([(100, EOF)], None, id="the end"),
        pytest.param([(105, EOF)], None, id="a later end"),
        pytest.param([(95, 0)], 95, id="a record"),
        pytest.param([(101, 0)], None, id="a record after the end"),
        pytest.param([(90, EOF), (100, EOF)], None, id="a broker that is behind, then the end"),
        pytest.param([(90, EOF), (90, 0)], 90, id="a broker that is behind, then a record"),
    ],
)
def test_the_end_is_the_one_that_is_known(
    monkeypatch: pytest.MonkeyPatch, answers: list[tuple[int, int]], first_visible: int | None
) -> None:
    """Between 90 and 100: nothing is called empty that a broker has not shown."""
    reader = cast(Any, Reader(monkeypatch, *answers))
    assert visible_records.find_first_visible(reader, TP, 90, 100) == first_visible


def test_a_broker_that_stays_behind_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the cluster does not answer, which is asked again."""
    reader = cast(Any, Reader(monkeypatch, (90, EOF)))
    with pytest.raises(ClusterUnreachable):
        visible_records.find_first_visible(reader, TP, 90, 100)


@pytest.mark.parametrize(
    ("answers", "is_answered"),
    [
        pytest.param([(50, EOF)], False, id="behind"),
        pytest.param([(50, OUT_OF_RANGE)], False, id="so far behind that it is out of range"),
        pytest.param([(100, EOF)], True, id="nothing visible up to the end"),
        pytest.param([(50, EOF), (50, 0)], True, id="behind, then a record"),
    ],
)
def test_a_record_is_missing_only_where_the_end_is(
    monkeypatch: pytest.MonkeyPatch, answers: list[tuple[int, int]], is_answered: bool
) -> None:
    """A record that was copied is looked for at 50, and the partition is known to end at 100."""
    reader = cast(Any, Reader(monkeypatch, *answers))
    records = visible_records.read_first_records(reader, {TP: 50}, {TP: 100})
    assert (TP in records) == is_answered


def test_without_a_known_end_every_answer_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also that of a broker whose offsets end before."""
    for answer in ((50, EOF), (50, OUT_OF_RANGE)):
        reader = cast(Any, Reader(monkeypatch, answer))
        assert visible_records.read_first_records(reader, {TP: 50}, {TP: 50}) == {TP: None}
        reader = cast(Any, Reader(monkeypatch, answer))
        assert visible_records.read_first_records(reader, {TP: 50}) == {TP: None}


@pytest.mark.parametrize("markers_until_s", [0, 500])
def test_markers_are_progress(monkeypatch: pytest.MonkeyPatch, markers_until_s: int) -> None:
    """Millions of aborted records lie before the end: none of them is returned, and the read goes
    on, with heartbeats, as long as the position moves.
    """
    beats: list[float] = []
    for read in (
        lambda reader: visible_records.read_first_records(
            reader, {TP: 90}, {TP: 100}, lambda: beats.append(reader.now_s)
        ),
        lambda reader: visible_records.find_first_visible(
            reader, TP, 90, 100, lambda: beats.append(reader.now_s)
        ),
    ):
        beats.clear()
        reader = Reader(monkeypatch, *[(90, EOF)])
        reader.markers_until_s = markers_until_s
        with suppress(ClusterUnreachable):
            assert TP not in read(cast(Any, reader))
        assert (reader.now_s > markers_until_s) is True
        assert bool(beats) == (markers_until_s > 0)
        assert all(later - earlier < 30 for earlier, later in pairwise(beats))
