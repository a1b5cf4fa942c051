"""`--stop-at-end`: what has to be known before a service may say that everything is copied."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from common import clock, stop_at_end
from common.envelope import Head
from common.errors import ClusterUnreachable, LagsBehind, ReoError, SourceTruncated
from common.frontier import Frontier
from common.kafka import intermediate_records, partition_offsets
from common.kafka.partition_offsets import GroupCommit
from common.kafka.topics import Topic
from common.route_states import RouteState
from common.routes import Route, TopicPartition
from common.settings import load
from common.stage_process import COMPLETE_FILE
from common.stop_at_end import CHECK_INTERVAL_S, EndOfCopy, StageTwoAlone
from reo.service.supervisor import STOPPED_EXIT_CODE, Supervisor
from tests.unit.common.settings.test_settings import GOOD

HERE = TopicPartition("orders-proxy", 0)


@dataclass
class Story:
    """A clock that a test sets, and whether the workers are ready."""

    now: float = 0.0
    is_ready: bool = False

    def monotonic(self) -> float:
        """Seconds."""
        return self.now

    def pass_to(self, now: float, end: EndOfCopy) -> str | None:
        """Check at that time."""
        self.now = now
        return end.check()


@pytest.fixture
def story(monkeypatch: pytest.MonkeyPatch) -> Story:
    """The clock of `common.stop_at_end`."""
    made = Story()
    monkeypatch.setattr("common.stop_at_end.clock", made)
    return made


def test_stage_one_counts_when_stage_two_was_ready_before_its_plan(story: Story) -> None:
    """A plan that was begun before says what a frontier said that nobody had compared."""
    end = EndOfCopy(lambda: story.is_ready)
    end.planned_at = 1.0
    assert story.pass_to(2.0, end) is None
    story.is_ready = True
    assert story.pass_to(3.0, end) == "ask again"
    assert story.pass_to(4.0, end) is None
    end.planned_at = 3.5
    assert story.pass_to(5.0, end) == "complete"


def test_a_worker_that_is_started_again_begins_the_time_again(story: Story) -> None:
    """It compares its frontiers again, and may move them back."""
    end = EndOfCopy(lambda: story.is_ready)
    story.is_ready = True
    assert story.pass_to(1.0, end) is None
    story.is_ready = False
    assert story.pass_to(2.0, end) is None
    story.is_ready, end.planned_at = True, 1.5
    assert story.pass_to(3.0, end) == "ask again"


def test_the_workers_are_not_asked_all_the_time(story: Story) -> None:
    """Each look reads the metrics of all processes."""
    looks: list[float] = []
    end = EndOfCopy(lambda: bool(looks.append(story.now)))
    for now in (1.0, 1.0 + CHECK_INTERVAL_S / 2, 1.0 + CHECK_INTERVAL_S):
        story.pass_to(now, end)
    assert looks == [1.0, 1.0 + CHECK_INTERVAL_S]


def test_an_exit_code_alone_is_no_end(story: Story, tmp_path: Path) -> None:
    """Stage one also ends with 0 after a SIGTERM that only it has received."""
    end = EndOfCopy(lambda: story.is_ready)
    assert not end.has_stage_one_copied(tmp_path)
    (tmp_path / COMPLETE_FILE).write_text("7.25")
    assert end.has_stage_one_copied(tmp_path)
    assert end.planned_at == 7.25
    assert not end.has_stage_one_copied(tmp_path), "the next process says it anew"


@pytest.mark.parametrize(("is_at_end", "code"), [(False, 0), (True, STOPPED_EXIT_CODE)])
def test_a_part_is_not_taken_for_the_whole(
    monkeypatch: pytest.MonkeyPatch, is_at_end: bool, code: int
) -> None:
    """SIGTERM before the end: 0 only for a service that has none."""
    monkeypatch.setattr("reo.service.startup.prepare_clusters", lambda *_: None)
    end = {"REO_STOP_AT_END": str(is_at_end), "REO_METRICS_PORT": "0"}
    assert Supervisor(load(GOOD | end), (), lambda: True).run() == code
    assert STOPPED_EXIT_CODE == 143


def make_commit(frontier: int, intermediate_offset: int, **more: Any) -> GroupCommit:
    """Of a group; `more`: topic and gap."""
    return GroupCommit(
        intermediate_offset,
        Frontier(
            frontier,
            1,
            "0123456789abcdef",
            1,
            more.get("topic", "id"),
            -1,
            0,
            more.get("gap"),
        ),
    )


@pytest.mark.parametrize(
    ("before", "now", "is_at_destination", "is_complete"),
    [
        pytest.param(make_commit(4, 5), make_commit(9, 10), True, True, id="all is copied"),
        pytest.param(make_commit(4, 5), make_commit(9, 10), False, False, id="lost since"),
        pytest.param(None, make_commit(9, 10), True, True, id="a first start"),
        pytest.param(
            None,
            make_commit(-1, 10),
            True,
            False,
            id="a first start behind unread envelopes",
        ),
        pytest.param(make_commit(4, 5), make_commit(8, 9), True, False, id="not read"),
        pytest.param(make_commit(4, 5), make_commit(4, 10, gap=6), True, False, id="behind a gap"),
        pytest.param(make_commit(4, 10), make_commit(-1, 10), True, False, id="moved back"),
        pytest.param(
            make_commit(-1, 10, topic="old"), make_commit(-1, 10), True, False, id="recreated"
        ),
    ],
)
def test_what_is_read_is_not_always_copied(
    monkeypatch: pytest.MonkeyPatch,
    before: Any,
    now: Any,
    is_at_destination: bool,
    is_complete: bool,
) -> None:
    """Stage two alone also has to commit the records."""
    commits = [{HERE: before} if before else {}, {HERE: now}]
    end = make_stage_two_alone(monkeypatch, commits, {}, is_at_destination)
    assert end.is_complete() == is_complete


def make_stage_two_alone(
    monkeypatch: pytest.MonkeyPatch,
    commits: list[dict[TopicPartition, GroupCommit]],
    states: dict[str, RouteState],
    is_at_destination: bool = True,
) -> StageTwoAlone:
    """Of the intermediate partitions of the last commits. Each ended at 10 when it started, with an
    envelope up to source offset 9.
    """

    def read_commits(_: object, tps: Any, *__: object) -> dict[TopicPartition, GroupCommit]:
        read = commits.pop(0)
        return {tp: read[tp] for tp in tps if tp in read}

    intermediates = list(commits[-1])
    for name in ("create_commit_reader", "create_admin_client", "create_reader"):
        monkeypatch.setattr(stop_at_end, name, lambda *_: None)
    readable = SimpleNamespace(read=lambda *_: states)
    monkeypatch.setattr(stop_at_end, "RouteStates", lambda _: readable)
    for module, name, value in (
        (partition_offsets, "list_end_offsets", 10),
        (partition_offsets, "list_beginning_offsets", 0),
        (intermediate_records, "read_newest_heads", Head("0123456789abcdef", 1, 0, 7, 9)),
    ):
        answer = dict.fromkeys(intermediates, value)
        monkeypatch.setattr(module, name, lambda *_, answer=answer, **__: answer)
    monkeypatch.setattr(partition_offsets, "read_commits", read_commits)
    monkeypatch.setattr(stop_at_end, "has_copied_records", lambda *_: is_at_destination)
    names = [tp.topic.removesuffix("-proxy") for tp in intermediates]
    copied = {Route(name, name, f"{name}-proxy"): Topic(name, "source", 1, "") for name in names}
    return StageTwoAlone(cast("Any", SimpleNamespace(destination_cluster=None)), copied)


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (RouteState("paused", 1, "ann"), LagsBehind),
        (RouteState("stopped", 1, "ann", SourceTruncated.exit_code, "ends at 3"), SourceTruncated),
    ],
    ids=["paused", "stopped"],
)
def test_a_halted_route_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, story: Story, state: RouteState, error: type[ReoError]
) -> None:
    """Stage two alone, as with stage one: when the others are copied, the service ends with the
    code of what has stopped the route, or with 36. Resumed, the route is waited for again.
    """
    there = TopicPartition("logs-proxy", 0)
    begun, copied = make_commit(4, 5), make_commit(9, 10)
    commits = [
        {},
        {HERE: begun, there: begun},
        {HERE: copied, there: begun},
        {HERE: copied, there: begun},
    ]
    states = {there.topic: state}
    end = make_stage_two_alone(monkeypatch, commits, states)
    story.now = 1.0
    assert not end.is_complete()
    story.now = 2.0
    with pytest.raises(error, match=f"logs is {state.kind} .*`reo resume logs`"):
        end.is_complete()
    states[there.topic] = state._replace(kind="running")
    story.now = 3.0
    assert not end.is_complete()


def test_an_end_that_is_lower_now_is_named_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It waits for an offset that nobody writes. A broker that does not answer changes nothing."""
    now_s, ends = 100.0, [10, 4, 4]
    monkeypatch.setattr(clock, "monotonic", lambda: now_s)

    def list_end_offsets(*_: object, **__: object) -> dict[TopicPartition, int]:
        if len(ends) == 2 and now_s < 200:
            raise ClusterUnreachable("away")
        return {HERE: ends.pop(0)}

    for name in ("create_commit_reader", "create_admin_client", "create_reader"):
        monkeypatch.setattr(stop_at_end, name, lambda *_: None)
    monkeypatch.setattr(stop_at_end, "RouteStates", lambda _: SimpleNamespace(read=lambda *_: {}))
    monkeypatch.setattr(partition_offsets, "list_end_offsets", list_end_offsets)
    monkeypatch.setattr(partition_offsets, "list_beginning_offsets", lambda *_: {HERE: 0})
    monkeypatch.setattr(partition_offsets, "read_commits", lambda *_: {})
    monkeypatch.setattr(intermediate_records, "read_newest_heads", lambda *_: {})
    settings = cast("Any", SimpleNamespace(destination_cluster=None))
    copied = {Route("orders", "orders", HERE.topic): Topic("orders", "source", 1, "")}
    end = StageTwoAlone(settings, copied)
    for now_s in (110.0, 130.0, 200.0, 220.0):  # noqa: B007  (`clock.monotonic` says it)
        assert not end.is_complete()
    said = f"the end offset of {HERE} is lower than when this command was started"
    assert caplog.text.count(said) == 1
    assert ends == [4]
