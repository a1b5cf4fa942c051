"""The end of a run with `--stop-at-end`: whether something is left to copy. What is stated of the
source then: `tests/unit/test_source_looks.py`.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from common import runtime
from common.envelope import Head
from common.errors import ClusterUnreachable, SourceTruncated
from common.frontier import Frontier
from common.kafka import destination_contents, partition_offsets, topics
from common.kafka.partition_offsets import GroupCommit
from common.routes import TopicPartition
from reo.service.deduplicator_stop_at_end import has_copied_what_was_read
from replicator import stop_at_end
from replicator.stop_at_end import Completion

SOURCE, INTERMEDIATE = TopicPartition("orders", 0), TopicPartition("orders-proxy", 0)
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
    assert has_copied_what_was_read(now, make_commit(30), newest) is has_copied


@pytest.mark.parametrize(("frontier", "has_copied"), [(33, True), (30, False), (-1, False)])
def test_stage_two_alone_without_a_frontier_at_the_start(frontier: int, has_copied: bool) -> None:
    """A first frontier begins at the end of the intermediate topic: what was there is not
    copied.
    """
    assert has_copied_what_was_read(make_commit(frontier), None, make_newest(33)) is has_copied
    assert has_copied_what_was_read(make_commit(frontier), None, None)


NO_FAILOVER = SimpleNamespace(failover=False)


def create_completion(
    commits: dict[TopicPartition, Any], end: int, monkeypatch: pytest.MonkeyPatch
) -> Completion:
    """Of a process that started when the source ended there; the source has nothing visible after
    the frontier, and the destination has what these commits say.
    """
    monkeypatch.setattr(
        stop_at_end,
        "find_first_visible",
        lambda _, ranges: dict.fromkeys(ranges),
    )
    monkeypatch.setattr(destination_contents, "has_copied_records", lambda *_: True)
    monkeypatch.setattr(topics, "describe_sources", lambda *_: ())
    clients = SimpleNamespace(
        source_admin=None,
        source_reader=None,
        destination_admin=None,
        destination_reader=None,
        beat=lambda: None,
    )
    completion = Completion(
        cast(Any, clients),
        cast(Any, SimpleNamespace(try_read_commits=lambda _: commits)),
        cast(Any, None),
        lambda: True,
    )
    completion.end_offsets = {INTERMEDIATE: end}
    return completion


def make_plan(start: int = 30, settings: Any = NO_FAILOVER, sources: Any = ()) -> Any:
    """A plan that begins at this source offset."""
    return SimpleNamespace(
        settings=settings,
        sources=sources,
        start_offsets={INTERMEDIATE: start},
        map_source_partitions=lambda: {INTERMEDIATE: SOURCE},
    )


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
    monkeypatch: pytest.MonkeyPatch, frontier: int | None, is_at_destination: bool, left: str
) -> None:
    """30 is the first offset that is not copied, says the plan, and the source ends there."""
    commits = {} if frontier is None else {INTERMEDIATE: make_commit(frontier)}
    completion = create_completion(commits, 30, monkeypatch)
    monkeypatch.setattr(destination_contents, "has_copied_records", lambda *_: is_at_destination)
    assert completion.find_left(make_plan()) == left


@pytest.mark.parametrize(
    ("first_visible", "left"),
    [
        pytest.param(None, "nothing", id="markers, or what filter.sql left out is below"),
        pytest.param(35, "records", id="a record"),
    ],
)
def test_only_what_is_visible_is_left(
    monkeypatch: pytest.MonkeyPatch, first_visible: int | None, left: str
) -> None:
    """The source ended at 37 when the process started, and 30 is the first offset that is not
    copied.
    """
    completion = create_completion({INTERMEDIATE: make_commit(29)}, 37, monkeypatch)
    asked: list[Any] = []

    def find(_: object, ranges: Any) -> Any:
        asked.append(ranges)
        return {SOURCE: first_visible}

    monkeypatch.setattr(stop_at_end, "find_first_visible", find)
    monkeypatch.setattr(partition_offsets, "list_end_offsets", lambda *_: {SOURCE: 40})
    assert completion.find_left(make_plan()) == left
    assert asked == [{SOURCE: (30, 37)}]


@pytest.mark.parametrize("what", ["the source was recreated", "the source does not answer"])
def test_nothing_is_complete_that_cannot_be_told(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """An empty new topic has nothing left to copy; another candidate may end sooner than the one
    that has died.
    """

    def find(_: object, ranges: Any) -> Any:
        if what == "the source does not answer":
            raise ClusterUnreachable("no record for 10 s")
        return dict.fromkeys(ranges)

    completion = create_completion({INTERMEDIATE: make_commit(29)}, 30, monkeypatch)
    monkeypatch.setattr(stop_at_end, "find_first_visible", find)
    found = {"the topic": "new" if what == "the source was recreated" else "old"}
    monkeypatch.setattr(topics, "describe_sources", lambda *_: found)
    plan = make_plan(sources={"the topic": "old"})
    assert completion.find_left(plan) == "unknown"


@pytest.mark.parametrize(
    ("ends", "has_failover", "found", "is_refused"),
    [
        pytest.param([36, 36], False, "old", True, id="it lost a record"),
        pytest.param([37], False, "old", False, id="it is as it was"),
        pytest.param([36, 37], False, "old", False, id="a leader that was replaced"),
        pytest.param([], True, "old", False, id="another candidate is behind"),
        pytest.param([0, 0], False, "new", False, id="recreated, which the next plan names"),
    ],
)
def test_a_source_that_loses_what_was_not_copied_has_no_end_to_wait_for(
    monkeypatch: pytest.MonkeyPatch,
    ends: list[int],
    has_failover: bool,
    found: str,
    is_refused: bool,
) -> None:
    """It ended at 37 when the process started, and 30 is the first offset that is not copied."""
    completion = create_completion({}, 37, monkeypatch)
    monkeypatch.setattr(partition_offsets, "list_end_offsets", lambda *_: {SOURCE: ends.pop(0)})
    monkeypatch.setattr(partition_offsets, "refresh_metadata", lambda *_: None)
    monkeypatch.setattr(runtime, "sleep", lambda _: None)
    monkeypatch.setattr(stop_at_end, "find_first_visible", lambda *_: {SOURCE: 30})
    monkeypatch.setattr(topics, "describe_sources", lambda *_: {"the topic": found})
    settings = SimpleNamespace(
        failover=has_failover, source=SimpleNamespace(request_timeout_ms=1000)
    )
    plan = make_plan(settings=settings, sources={"the topic": "old"})
    if is_refused:
        with pytest.raises(SourceTruncated, match=r"ended at offset 37 .* ends at 36 now"):
            completion.find_left(plan)
    else:
        assert completion.find_left(plan) == "records"
    assert not ends
