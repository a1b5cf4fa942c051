"""When a run of stage one has to give way to a new plan: by the frontiers committed now, and by a
hole that stays. On real brokers: `tests/broker/test_holes.py`.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from common.frontier import Frontier, Hole, Link, RuleState
from common.kafka import partition_offsets
from common.kafka.partition_offsets import GroupCommit
from common.kafka.topics import Topic
from common.routes import Route, TopicPartition
from replicator.cluster_snapshot import ClusterSnapshot
from replicator.intermediate_holes import HOLE_S
from replicator.run import Plan
from replicator.run_watch import Watch

TP = TopicPartition("orders-proxy", 0)
PLACE, AT_SOURCE = TopicPartition("copy-proxy", 0), TopicPartition("orders", 0)
EPOCH = 1000
NO_CLIENTS = SimpleNamespace(
    destination_admin=None,
    source_admin=None,
    source_reader=None,
    beat=lambda: None,
    read_up_to_writer=SimpleNamespace(write=lambda *_: None),
)


@pytest.mark.parametrize(
    ("frontier", "epoch", "is_superseded"),
    [
        (1, 6, False),  # as it was planned
        (5, 7, False),  # its own records are copied
        (1, 8, True),  # a newer run has begun
        (-1, 6, True),  # the partition was begun again, when its destination was recreated
        (0, 7, True),
    ],
)
def test_a_run_gives_way(frontier: int, epoch: int, is_superseded: bool) -> None:
    """The run has epoch 7 and begins at source offset 2."""
    watch = SimpleNamespace(plan=SimpleNamespace(epoch=7, start_offsets={TP: 2}))
    state = Frontier(RuleState(frontier, epoch, None), "0123456789abcdef", 1, "id", -1, 0)
    snapshot = SimpleNamespace(commits={TP: GroupCommit(0, state)})
    assert Watch._is_superseded(cast(Any, watch), cast(Any, snapshot)) is is_superseded


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> tuple[Watch, SimpleNamespace]:
    """The watch of a run of one partition, and its clock."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr("common.runtime.monotonic", lambda: clock.now)
    monkeypatch.setattr(partition_offsets, "list_end_offsets", lambda *_, **__: {PLACE: 0})
    monkeypatch.setattr(
        partition_offsets,
        "list_stable_ends",
        lambda *_, **__: {PLACE: partition_offsets.EndOffset(0, None)},
    )
    settings = SimpleNamespace(
        filter=SimpleNamespace(sql=""),
        replicator=SimpleNamespace(batch_s=0),
        stop_at_end=False,
        failover=False,
    )
    source = Topic("orders", "id", 1, "cluster")
    route = Route("orders", "copy", "copy-proxy")
    plan = Plan(
        EPOCH, cast(Any, settings), {route: source}, {route: source.identity}, {PLACE: 0}, 0
    )
    return Watch(cast(Any, settings), cast(Any, NO_CLIENTS), plan), clock


def build_snapshot(watch: Watch, number: int, rule: RuleState) -> ClusterSnapshot:
    """A snapshot under load: the source grows, stage one is at its end, and stage two never has
    read all that is there.
    """
    newest = cast(Any, SimpleNamespace(source_offset=1000 + number, epoch=EPOCH, timestamp_ms=1))
    commit = GroupCommit(number * 10, Frontier(rule, "i", 1, "t", -1, 0))
    ends = {AT_SOURCE: partition_offsets.EndOffset(1001 + number, None)}
    intermediate_ends = {PLACE: partition_offsets.EndOffset(1000 + number * 20, None)}
    return ClusterSnapshot(
        watch.plan.sources,
        {AT_SOURCE: 0},
        ends,
        {AT_SOURCE: 1001 + number},
        intermediate_ends,
        {PLACE: newest},
        {PLACE: commit},
    )


def test_a_hole_that_stays_ends_the_run_also_under_load(
    watch: tuple[Watch, SimpleNamespace],
) -> None:
    """While records flow and more of them are dropped: the hole's beginning stays where it is for
    HOLE_S, which is the verdict.
    """
    follows, clock = watch
    verdicts = {}
    for number in range(20):
        clock.now += 0.5
        verdicts[number] = follows.find_event(
            build_snapshot(
                follows, number, RuleState(41, EPOCH, Link(41, 1, 1), Hole(43, 60 + number))
            )
        )
    assert [number for number, verdict in verdicts.items() if verdict == "hole"] == list(
        range(int(HOLE_S / 0.5) + 1, 20)
    )


@pytest.mark.parametrize(
    "rule",
    [
        lambda number: RuleState(
            41 + number, EPOCH, Link(41 + number, 1, 1), Hole(43 + number, 900)
        ),
        lambda number: RuleState(41, EPOCH, None, Hole(43, 60) if number % 8 else None),
        lambda number: RuleState(41, EPOCH - 1, None, Hole(43, 60)),
        lambda number: RuleState(41 + number, EPOCH, None),
    ],
    ids=["it is being filled", "it is closed and another one opens", "of an older run", "none"],
)
def test_other_holes_end_no_run(watch: tuple[Watch, SimpleNamespace], rule: Any) -> None:
    """A retry that fills it, one after another, what a run before left behind."""
    follows, clock = watch
    for number in range(20):
        clock.now += 0.5
        assert follows.find_event(build_snapshot(follows, number, rule(number))) is None
