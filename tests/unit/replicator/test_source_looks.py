"""What was seen empty at the source is stated only while the source is certainly the one that was
looked at (`replicator.runs.empty_envelopes`): while a run lives, and before one with
`--stop-at-end`. On real brokers: `tests/broker/test_empty_ranges.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from common.errors import SourceRecreated, SourceTruncated
from common.kafka import source_topics
from tests.harness.watched_source import HERE, ROUTE, TOPIC, WatchedSource

RECORDS = dict.fromkeys(range(10), True) | dict.fromkeys(range(10, 20), False)
"""Records end at 9; 10 to 19 are offsets that nobody sees."""


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> WatchedSource:
    """Its records are copied."""
    source = WatchedSource(dict(RECORDS))
    source.use(monkeypatch)
    return source


def watch_it(source: WatchedSource) -> None:
    """For four seconds: a partition that stands still is looked at after one."""
    watch = source.build_watch()
    for _ in range(8):
        if source.observe(watch) is not None:
            return


def end_it(source: WatchedSource) -> None:
    """As with `--stop-at-end`, before a run: it is looked at at once."""
    watch = source.build_watch(quiet_s=0)
    for _ in range(2):
        if source.observe(watch, 0) is not None:
            return


BOTH = pytest.mark.parametrize("look", [watch_it, end_it])


def lose_and_grow(source: WatchedSource) -> None:
    """An unclean election loses 15 to 19; 15 to 24 become records."""
    source.records |= dict.fromkeys(range(15, 25), True)


@BOTH
def test_what_nobody_sees_is_stated(source: WatchedSource, look: Any) -> None:
    """From the offset after the frontier up to the end."""
    look(source)
    assert source.statements == [(10, 19)]


@BOTH
@pytest.mark.parametrize("epoch_after", [2, None])
def test_a_new_leader_has_other_records_there(
    source: WatchedSource, look: Any, epoch_after: int | None
) -> None:
    """Right after the look, the leader changes: 15 to 19 are lost, and 15 to 24 become records. The
    last copied record, 9, is there. Nothing is stated, neither of the old leader's history nor of
    the new one's.
    """

    def change() -> None:
        lose_and_grow(source)
        source.leader_epoch = epoch_after

    source.after_look = change
    look(source)
    assert source.records[15]
    assert source.statements == []


@BOTH
def test_a_broker_that_was_away_may_have_lost_records(source: WatchedSource, look: Any) -> None:
    """Its disk was set back, with its leader epochs: only the time that the answer took shows it.
    Old brokers have no leader epochs at all.
    """
    source.leader_epoch = None
    done: list[bool] = []

    def change() -> None:
        def be_away() -> None:
            if not done:
                done.append(True)
                lose_and_grow(source)
                source.now_s += 3

        source.before_answer = be_away

    source.after_look = change
    look(source)
    assert done
    assert source.statements == []


@BOTH
def test_what_the_source_has_lost_was_not_looked_at(source: WatchedSource, look: Any) -> None:
    """Right after the look it ends earlier, and nothing else tells of it. The offsets from its end
    on will be those of other records.
    """
    source.leader_epoch = None

    def lose() -> None:
        for offset in range(15, 20):
            source.records.pop(offset, None)

    source.after_look = lose
    if look is watch_it:
        watch = source.build_watch()
        while source.end == 20:
            source.observe(watch)
    else:
        look(source)
    assert source.statements == []


@BOTH
def test_a_look_without_an_answer_hides_no_other_topic(
    source: WatchedSource, look: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic is recreated before the look, and ends before what was there: the look has no
    answer, and the snapshot says that it is another topic.
    """

    def recreate() -> None:
        source.records.clear()
        other = replace(TOPIC, topic_id="another")
        monkeypatch.setattr(source_topics, "describe_sources", lambda *_: {ROUTE: other})

    source.before_look = recreate
    with pytest.raises(SourceRecreated):
        look(source)


@BOTH
def test_a_look_without_an_answer_is_repeated_with_the_end_of_now(
    source: WatchedSource, look: Any
) -> None:
    """Before the look the source loses 15 to 19, which nobody sees: the next look is up to 14."""
    source.leader_epoch = None

    def lose() -> None:
        for offset in range(15, 20):
            source.records.pop(offset, None)

    source.before_look = lose
    look(source)
    assert source.statements == ([(10, 14)] if look is watch_it else [])


@BOTH
def test_without_leader_epochs_a_look_counts_when_nothing_happens(
    source: WatchedSource, look: Any
) -> None:
    """Old brokers do not report them."""
    source.leader_epoch = None
    look(source)
    assert source.statements == [(10, 19)]


@BOTH
def test_a_long_look_is_no_outage(source: WatchedSource, look: Any) -> None:
    """It reads over millions of markers for a minute."""

    def take_long() -> None:
        source.now_s += 60

    source.after_look = take_long
    look(source)
    assert source.statements == [(10, 19)]


@BOTH
def test_what_was_deleted_before_the_look_was_not_looked_at(
    source: WatchedSource, look: Any
) -> None:
    """Retention deletes 10 to 14 while the source is read: whether they were records is unknown."""
    source.records[12] = True

    def delete() -> None:
        for offset in range(15):
            source.records.pop(offset, None)

    source.before_look = delete
    look(source)
    assert min(source.records) == 15
    assert source.statements == []


@BOTH
def test_nothing_is_stated_of_a_source_that_lost_what_was_copied(
    source: WatchedSource, look: Any
) -> None:
    """The last copied record is another one, or none."""
    source.records[9] = False
    with pytest.raises(SourceTruncated):
        look(source)
    assert source.statements == []


def test_the_look_goes_no_further_than_the_last_stable_offset(source: WatchedSource) -> None:
    """What an open transaction holds back may become visible."""
    source.open_from = 15
    watch_it(source)
    assert source.statements == [(10, 14)]


def test_a_look_is_forgotten_when_the_leader_changes_later(source: WatchedSource) -> None:
    """It was stated, and had no effect yet: the new leader is looked at before it is stated again.
    What it has follows the frontier then, and no look finds it empty.
    """
    watch = source.build_watch()
    source.observe_for(watch, 3)
    assert source.statements == [(10, 19)]
    source.statements.clear()
    lose_and_grow(source)
    source.leader_epoch = 2
    for _ in range(20):
        assert source.observe(watch) is None
        assert watch.last_snapshot is not None
        assert watch.last_snapshot.partitions[HERE].empty_up_to == 0
        assert watch.last_snapshot.partitions[HERE].lag == 15
    assert source.statements == []


def test_more_markers_are_added_to_what_is_known(source: WatchedSource) -> None:
    """Only what has been added is read; the statement covers all of it."""
    watch = source.build_watch()
    source.observe_for(watch, 3)
    source.records |= dict.fromkeys(range(20, 30), False)
    source.observe_for(watch, 3)
    assert source.statements == [(10, 19), (10, 29)]
    assert source.looks == [10, 20]


def test_a_frontier_that_goes_back_makes_the_range_longer(source: WatchedSource) -> None:
    """A coordinator that is out of date answers with an older one: what follows that frontier was
    not looked at.
    """
    source.records |= dict.fromkeys(range(10, 15), True)
    watch = source.build_watch()
    source.frontier = 14
    source.observe_for(watch, 3)
    assert source.statements == [(15, 19)]
    source.frontier = 11
    assert source.observe(watch) is None
    assert watch.last_snapshot is not None
    assert watch.last_snapshot.partitions[HERE].lag == 8
    assert source.statements == [(15, 19)]
