"""The end of a copy with `--stop-at-end`: what the targets are, and when stage one has reached
them. What is stated of the source on the way: `tests/unit/replicator/test_source_looks.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, cast

import pytest

from common import clock, stop_at_end
from common.envelope import Head
from common.errors import ClusterUnreachable, SourceTruncated
from common.frontier import Frontier
from common.kafka import partition_offsets, source_topics
from common.kafka.partition_offsets import GroupCommit
from common.settings import load
from common.stop_at_end import build_target
from replicator import stage
from replicator.runs.planner import Planner
from replicator.stage import COMMITTED_S, Stage
from tests.harness.stage_without_engine import NoEngine
from tests.harness.watched_source import ROUTE, SOURCE, TOPIC, WatchedSource
from tests.unit.common.settings.test_settings import GOOD

IDENTITY = "0123456789abcdef"
EPOCH = 7


def make_commit(
    frontier: int, epoch: int = EPOCH, gap: int | None = None, topic_id: str = "id"
) -> GroupCommit:
    """The group's commit after everything is read."""
    return GroupCommit(10, Frontier(frontier, epoch, IDENTITY, 1, topic_id, -1, 0, gap))


def make_newest(through: int, epoch: int = EPOCH) -> Head:
    """The newest envelope when the command was started."""
    return Head(IDENTITY, epoch, 0, through - 2, through)


@pytest.mark.parametrize(
    ("now", "newest", "has_copied"),
    [
        pytest.param(make_commit(30), make_newest(30), True, id="as it was"),
        pytest.param(make_commit(30), None, True, id="the topic was empty"),
        pytest.param(make_commit(33, 9), make_newest(30), True, id="a newer run was copied"),
        pytest.param(make_commit(29, 9), make_newest(29), False, id="it has moved back"),
        pytest.param(make_commit(30, gap=33), make_newest(30), False, id="a gap is open"),
        pytest.param(make_commit(30), make_newest(33), False, id="the newest one is not copied"),
        pytest.param(make_commit(30), make_newest(33, 6), True, id="that is of an older run"),
        pytest.param(make_commit(30, topic_id="new"), None, False, id="the copy is another one"),
    ],
)
def test_stage_two_alone_has_not_copied_what_it_left_out(
    now: GroupCommit, newest: Head | None, has_copied: bool
) -> None:
    """The intermediate topic is read to its end each time; the frontier was 30 at the start."""
    assert build_target(10, make_commit(30), newest).is_reached(now) is has_copied


@pytest.mark.parametrize(("frontier", "has_copied"), [(33, True), (30, False), (-1, False)])
def test_stage_two_alone_without_a_frontier_at_the_start(frontier: int, has_copied: bool) -> None:
    """A first frontier begins at the end of the intermediate topic: what was there is not
    copied.
    """
    now = make_commit(frontier)
    assert build_target(10, None, make_newest(33)).is_reached(now) is has_copied
    assert build_target(10, None, None).is_reached(now)
    assert not build_target(11, None, None).is_reached(now), "one envelope is not read"


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> WatchedSource:
    """Thirty records, which are copied, and nothing after them."""
    source = WatchedSource(dict.fromkeys(range(30), True), frontier=29)
    source.use(monkeypatch)
    monkeypatch.setattr(clock, "sleep", source.pass_seconds)
    monkeypatch.setattr(stop_at_end, "has_copied_records", lambda *_: True)
    monkeypatch.setattr(Planner, "try_read_commits", lambda *_: source.read_commits())
    return source


def create_stage(
    source: WatchedSource,
    monkeypatch: pytest.MonkeyPatch,
    more: Mapping[str, str] = MappingProxyType({}),
) -> Stage:
    """Stage one, which asks this source."""
    monkeypatch.setattr(stage, "Clients", lambda *_: source.build_clients())
    return Stage(load({**GOOD, **more, "REO_STOP_AT_END": "true"}), lambda: False, NoEngine(), 1)


@pytest.mark.parametrize(
    ("frontier", "is_at_destination", "left"),
    [
        pytest.param(29, True, "nothing", id="as planned"),
        pytest.param(40, True, "nothing", id="further"),
        pytest.param(29, False, "unknown", id="the destination was recreated"),
        pytest.param(-1, True, "unknown", id="stage two has begun again since the plan was made"),
        pytest.param(None, True, "unknown", id="no answer"),
    ],
)
def test_a_frontier_counts_when_the_destination_has_what_it_says(
    source: WatchedSource,
    monkeypatch: pytest.MonkeyPatch,
    frontier: int | None,
    is_at_destination: bool,
    left: str,
) -> None:
    """30 is the first offset that is not copied, says the plan, and the source ends there."""
    one = create_stage(source, monkeypatch)
    source.has_commit, source.frontier = frontier is not None, frontier or 0
    monkeypatch.setattr(stop_at_end, "has_copied_records", lambda *_: is_at_destination)
    assert one._find_left(source.build_plan(30)) == left


def test_what_nobody_sees_is_committed_before_the_end(
    source: WatchedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source ended at 37 when the process started, with markers: that is stated, and stage two
    commits it. What comes later does not count.
    """
    one = create_stage(source, monkeypatch)
    source.records |= dict.fromkeys(range(30, 37), False)
    assert one._find_left(source.build_plan(30)) == "unknown"
    assert source.statements == [(30, 36)]
    assert source.now_s >= 1000 + COMMITTED_S

    def commit(seconds: float) -> None:
        source.now_s += seconds
        source.frontier = 36

    monkeypatch.setattr(clock, "sleep", commit)
    assert one._find_left(source.build_plan(30)) == "nothing"
    source.records |= dict.fromkeys(range(37, 50), True)
    assert one._find_left(source.build_plan(37)) == "nothing"


def test_a_record_before_the_target_is_left(
    source: WatchedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one that a reader cannot see yet."""
    one = create_stage(source, monkeypatch)
    source.records |= dict.fromkeys(range(30, 37), False) | {35: True}
    assert one._find_left(source.build_plan(30)) == "records"
    assert source.statements == []
    other = create_stage(source, monkeypatch)
    source.open_from = 32
    assert other._find_left(source.build_plan(30)) == "unknown"
    assert source.statements == [(30, 31)]


@pytest.mark.parametrize("what", ["the source was recreated", "the source does not answer"])
def test_nothing_is_complete_that_cannot_be_told(
    source: WatchedSource, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """An empty new topic has no records to copy; another source may end sooner than the one that
    has died.
    """

    def be_away(*_: object, **__: object) -> Any:
        raise ClusterUnreachable("no answer for 10 s")

    one = create_stage(source, monkeypatch)
    if what == "the source does not answer":
        monkeypatch.setattr(partition_offsets, "list_end_offsets", be_away)
    else:
        recreated = {ROUTE: replace(TOPIC, topic_id="new")}
        monkeypatch.setattr(source_topics, "describe_sources", lambda *_: recreated)
    assert one._find_left(source.build_plan(30)) == "unknown"
    assert not one.targets


@pytest.mark.parametrize(
    ("ends", "is_same", "is_refused"),
    [
        pytest.param([36, 36], True, True, id="it lost a record"),
        pytest.param([37], True, False, id="it is as it was"),
        pytest.param([36, 37], True, False, id="a leader that was replaced"),
        pytest.param([0, 0], False, False, id="recreated, which the next plan names"),
    ],
)
def test_a_source_that_loses_what_was_not_copied_has_no_end_to_wait_for(
    monkeypatch: pytest.MonkeyPatch, ends: list[int], is_same: bool, is_refused: bool
) -> None:
    """It ended at 37 when the process started, and 30 is the first offset that is not copied."""
    monkeypatch.setattr(partition_offsets, "list_end_offsets", lambda *_: {SOURCE: ends.pop(0)})
    monkeypatch.setattr(partition_offsets, "refresh_metadata", lambda *_: None)
    monkeypatch.setattr(clock, "sleep", lambda _: None)

    def check() -> None:
        stop_at_end.check_source_ends(cast(Any, None), {SOURCE: 37}, lambda: is_same)

    if is_refused:
        with pytest.raises(SourceTruncated, match=r"ended at offset 37 .* ends at 36 now"):
            check()
    else:
        check()
    assert not ends


@pytest.mark.parametrize("has_failover", [False, True])
def test_another_source_that_ends_earlier_can_be_behind(
    source: WatchedSource, monkeypatch: pytest.MonkeyPatch, has_failover: bool
) -> None:
    """Only in single mode it has lost something."""
    more = {"REO_SOURCE_MODE": "failover", "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1;b:1"}
    one = create_stage(source, monkeypatch, more if has_failover else {})
    checked: list[object] = []
    monkeypatch.setattr(stop_at_end, "check_source_ends", lambda _, ends, __: checked.append(ends))
    source.records |= dict.fromkeys(range(30, 37), True)
    assert one._find_left(source.build_plan(30)) == "records"
    assert checked == ([] if has_failover else [{SOURCE: 37}])
