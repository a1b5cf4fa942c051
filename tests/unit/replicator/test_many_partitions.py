"""With many partitions the watch asks for what has moved (`replicator.runs.watch`)."""

from __future__ import annotations

from typing import Any, cast

import pytest

from common import clock
from common.errors import ClusterUnreachable
from common.kafka import partition_offsets, visible_records
from common.routes import TopicPartition
from replicator.runs import last_record_check, watch
from replicator.runs.last_record_check import LastCopied, check_source_history
from replicator.runs.watch import ALL_S_A_PARTITION, ENDS_S, Watch
from tests.harness.last_record import make_last_record
from tests.harness.watched_source import HERE, WatchedSource

PARTITIONS = 2000
ALL_S = PARTITIONS * ALL_S_A_PARTITION


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> WatchedSource:
    """It has one partition, which is copied, and the interval of many."""
    source = WatchedSource(dict.fromkeys(range(10), True))
    source.use(monkeypatch)
    monkeypatch.setattr(watch, "ALL_S_A_PARTITION", ALL_S)
    return source


def choose_later(source: WatchedSource, followed: Watch, seconds: float = ENDS_S) -> list[Any]:
    """What the next snapshot asks for."""
    source.now_s += seconds
    return list(followed.choose_partitions())


def follow(source: WatchedSource) -> Watch:
    """The watch after its first snapshot, which is of everything."""
    followed = source.build_watch()
    assert choose_later(source, followed, 0) == [HERE]
    assert source.observe(followed) is None
    source.compared.clear()
    return followed


def test_a_partition_that_is_copied_is_not_asked_for(source: WatchedSource) -> None:
    """Once a second its end is asked, and nothing else; after a longer time everything is."""
    answers: list[float] = []
    source.before_answer = lambda: answers.append(source.now_s)
    followed = follow(source)
    answers.clear()
    for _ in range(int(ALL_S / ENDS_S) - 1):
        assert choose_later(source, followed, ENDS_S / 2) == []
        assert choose_later(source, followed, ENDS_S / 2) == []
    assert len(answers) == ALL_S / ENDS_S - 1
    assert choose_later(source, followed) == [HERE]


@pytest.mark.parametrize("what", ["record", "leader"])
def test_a_partition_that_moves_is_asked_for(source: WatchedSource, what: str) -> None:
    """Within a second; when its leader changed, its last copied record is compared."""
    followed = follow(source)
    if what == "record":
        source.records[10] = True
    else:
        source.leader_epoch = 2
    assert choose_later(source, followed) == [HERE]
    assert source.observe(followed) is None
    assert source.compared == ([9] if what == "leader" else [])


@pytest.mark.parametrize("what", ["unread", "uncopied", "gap", "open transaction", "no commit"])
def test_a_partition_is_asked_for_until_it_is_copied(source: WatchedSource, what: str) -> None:
    """Whatever is left to do."""
    source.records |= {10: True}
    source.frontier = 9 if what == "uncopied" else 10
    source.last_copied = 9
    source.gap = 12 if what == "gap" else None
    source.position = 4 if what == "unread" else 5
    source.has_commit = what != "no commit"
    if what == "open transaction":
        source.open_from = 10
    followed = follow(source)
    assert choose_later(source, followed) == [HERE]


@pytest.mark.parametrize("what", ["late", "no answer"])
def test_a_broker_may_have_been_away(
    source: WatchedSource, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Its answer is late, or it does not answer: everything is asked for, and compared when the
    answer comes too late.
    """
    followed = follow(source)
    if what == "late":
        source.before_answer = lambda: source.pass_seconds(3)
    else:

        def refuse(*_: object) -> None:
            raise ClusterUnreachable("away")

        monkeypatch.setattr(partition_offsets, "read_stable_ends", refuse)
    assert choose_later(source, followed) == [HERE]
    source.before_answer = lambda: None
    assert source.observe(followed) is None
    assert source.compared == ([9] if what == "late" else [])


@pytest.mark.parametrize("is_answering", [True, False])
def test_a_long_comparison_is_no_outage(
    source: WatchedSource, monkeypatch: pytest.MonkeyPatch, is_answering: bool
) -> None:
    """While it lasts, the brokers are asked: otherwise the next snapshot would be late, compare
    again, and so on.
    """
    followed = follow(source)

    def compare(*arguments: Any) -> set[TopicPartition]:
        *_, beat = arguments
        for _ in range(3):
            source.now_s += 1 if is_answering else 3
            beat()
        return source.compare(*arguments)

    monkeypatch.setattr(last_record_check, "check_source_history", compare)
    source.leader_epoch = 2
    assert choose_later(source, followed) == [HERE]
    assert source.observe(followed) is None
    monkeypatch.setattr(last_record_check, "check_source_history", source.compare)
    source.compared.clear()
    assert choose_later(source, followed) == ([] if is_answering else [HERE])
    if not is_answering:
        assert source.observe(followed) is None
        assert source.compared == [9]


def test_what_waits_has_not_waited_since_the_last_snapshot(
    source: WatchedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing waited when the end was asked for the last time."""
    monkeypatch.setattr(clock, "time", lambda: source.now_s)
    followed = source.build_watch()
    followed.choose_partitions()
    source.observe(followed)
    for _ in range(4):
        assert choose_later(source, followed) == []
    source.records[10] = True
    assert choose_later(source, followed) == [HERE]
    source.observe(followed, 0)
    ((tp, _),) = followed.lag.partitions.items()
    assert followed.lag._set_seconds(tp, source.now_s) == ENDS_S


def test_last_records_are_compared_in_parts(
    source: WatchedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader fetches from so many partitions at a time; `beat` is called in between."""
    monkeypatch.undo()
    copied = {
        TopicPartition("orders", partition): LastCopied(make_last_record(9), 9)
        for partition in range(2 * visible_records.PARTITIONS_MAX + 1)
    }
    parts: list[int] = []

    def check_part(*arguments: Any) -> set[TopicPartition]:
        parts.append(len(arguments[3]))
        return set(arguments[3])

    monkeypatch.setattr(last_record_check, "_check_history", check_part)
    present = check_source_history(
        cast(Any, None), cast(Any, None), cast(Any, None), copied, lambda: parts.append(0)
    )
    assert present == copied.keys()
    assert parts == [
        visible_records.PARTITIONS_MAX,
        0,
        visible_records.PARTITIONS_MAX,
        0,
        1,
    ]
