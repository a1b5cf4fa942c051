"""A run is planned when every frontier shows its epoch, and a refused source is believed only when
the frontiers are certain (`replicator.run_planner`); on real brokers:
`tests/broker/test_frontier_in_doubt.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from common import runtime, source_candidates
from common.envelope import Head
from common.errors import (
    AccessRefused,
    ClusterUnreachable,
    ReoError,
    SourceRefused,
    SourceTruncated,
    StageFailed,
)
from common.frontier import Frontier
from common.kafka import partition_offsets, permissions, topic_creation, topics
from common.kafka.partition_offsets import GroupCommit
from common.liveness import Liveness
from common.routes import TopicPartition
from replicator import run_planner
from replicator.run_planner import Planner

TP, OTHER = TopicPartition("orders-proxy", 0), TopicPartition("orders-proxy", 1)


def plan_with(
    monkeypatch: pytest.MonkeyPatch,
    refuse: Callable[[], None],
    has_moved: list[bool],
    partitions_found: Sequence[int] = (1,),
) -> int:
    """How often the source is compared with the frontiers until there is a plan: the first time it
    is refused. `partitions_found`: how many the selected source has, one after the other.
    """
    found = list(partitions_found)
    compared = 0

    def select_source(*_: object) -> Any:
        nonlocal compared
        compared += 1
        if compared == 1:
            refuse()
        return SimpleNamespace(settings=None, sources=found.pop(0))

    unused = cast(Any, None)
    planner = Planner(
        cast(Any, SimpleNamespace(source=SimpleNamespace(backoff_min_ms=1, backoff_max_ms=1))),
        cast(Any, SimpleNamespace(use_source=lambda _: None, empty_envelopes=None)),
        cast(Any, SimpleNamespace(select_source=select_source)),
        unused,
        lambda: False,
    )
    monkeypatch.setattr(source_candidates, "try_candidates", lambda settings, use: use(settings))
    for name, result in (
        ("_prepare_sources", {}),
        ("_install_epoch", {TP: None}),
        ("_build_plan", "the plan"),
    ):
        monkeypatch.setattr(planner, name, lambda *_, result=result: result)
    monkeypatch.setattr(planner, "_has_moved", lambda _: has_moved.pop(0))
    monkeypatch.setattr(run_planner, "wait_unless_stopping", lambda *_: None)
    monkeypatch.setattr(
        topics,
        "list_intermediate_partitions",
        lambda count: [TopicPartition(TP.topic, partition) for partition in range(count or 1)],
    )
    assert planner.plan() == cast(Any, "the plan")
    return compared


@pytest.mark.parametrize("error", [SourceTruncated, SourceRefused])
def test_a_refusal_counts_only_with_certain_frontiers(
    monkeypatch: pytest.MonkeyPatch, error: type[ReoError]
) -> None:
    """What the source no longer has can be copied: the plan begins anew. SourceRefused can stand
    for one candidate that differs and another one that is truncated.
    """

    def refuse() -> None:
        raise error("orders-0 begins at offset 21 now")

    assert plan_with(monkeypatch, refuse, [True]) == 2
    with pytest.raises(error):
        plan_with(monkeypatch, refuse, [False])


def test_a_plan_has_every_partition_of_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """With failover: the candidate that was asked for the partitions lacks one of those that the
    selected one has. It would not be copied, and nothing would say so.
    """
    assert plan_with(monkeypatch, lambda: None, [], (2, 1)) == 2


def test_what_one_candidate_lacks_does_not_end_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one is prepared, in the same process."""
    asked = []

    def check_permissions(settings: Any, _: str) -> None:
        asked.append(settings)
        if settings == "the first":
            raise AccessRefused("orders may not be described")

    def try_both(_: object, use: Callable[[Any], Any]) -> Any:
        with pytest.raises(AccessRefused):
            use("the first")
        return use("the second")

    unused = cast(Any, None)
    planner = Planner(
        cast(Any, SimpleNamespace(source=SimpleNamespace(backoff_min_ms=1), stop_at_end=True)),
        cast(Any, SimpleNamespace(empty_envelopes=None)),
        unused,
        Liveness("test"),
        lambda: len(asked) == 2,
    )
    monkeypatch.setattr(permissions, "check_permissions", check_permissions)
    monkeypatch.setattr(source_candidates, "try_candidates", try_both)
    monkeypatch.setattr(topic_creation, "prepare_topics", lambda *_: {})
    monkeypatch.setattr(planner, "_install_epoch", lambda _: None)
    assert planner.plan() is None
    assert asked == ["the first", "the second"]


class StageTwo:
    """Stage two as the planner sees it: how far it has read its intermediate partitions, whose
    records are the epochs that were written to them; and the clock.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        self.records: dict[TopicPartition, list[int]] = {TP: [], OTHER: []}
        self.read: dict[TopicPartition, int] = {TP: 0, OTHER: 0}
        self.with_frontier = {TP, OTHER}
        self.undelivered: set[TopicPartition] = set()
        self.is_silent = False
        self.writes: list[tuple[float, TopicPartition]] = []
        self.every_pause: Callable[[], None] = self.read_all
        self.planner = Planner(
            cast(Any, None),
            cast(
                Any,
                SimpleNamespace(empty_envelopes=self, destination_admin=None, frontier_reader=None),
            ),
            cast(Any, None),
            Liveness("test"),
            lambda: False,
        )
        monkeypatch.setattr(runtime, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(runtime, "get_random_bits", lambda _: 7)
        monkeypatch.setattr(runtime, "sleep", self.sleep)
        monkeypatch.setattr(partition_offsets, "read_commits", self.read_commits)
        monkeypatch.setattr(
            partition_offsets,
            "list_end_offsets",
            lambda _, tps: {tp: len(self.records[tp]) for tp in tps},
        )

    def write(self, heads: Mapping[TopicPartition, Head], again_after_s: float) -> None:
        """As `EmptyEnvelopes`."""
        for tp, head in heads.items():
            last_s = max((at_s for at_s, other in self.writes if other == tp), default=0)
            if head.epoch not in self.records[tp] or self.now_s >= last_s + again_after_s:
                self.writes.append((self.now_s, tp))
                self.records[tp].append(head.epoch)

    def sleep(self, seconds: float) -> None:
        """Meanwhile stage two works."""
        self.now_s += seconds
        assert self.now_s < 2000, "it waits for ever"
        self.every_pause()

    def read_all(self) -> None:
        """It reads all that is there."""
        self.read = {tp: len(records) for tp, records in self.records.items()}

    def read_commits(
        self, _: object, tps: Iterable[TopicPartition], __: float
    ) -> dict[TopicPartition, GroupCommit]:
        """The frontiers have the highest epoch that was read; one that is read moves the source
        offset by one.
        """
        if self.is_silent:
            raise ClusterUnreachable("away")
        return {
            tp: GroupCommit(
                self.read[tp],
                Frontier(
                    self.read[tp],
                    max(self.records[tp][: self.read[tp]], default=0),
                    "0123456789abcdef",
                    1,
                    "id",
                    -1,
                    0,
                ),
            )
            for tp in tps
            if tp in self.with_frontier
        }

    def install(self) -> dict[TopicPartition, Frontier] | None:
        """The planner's frontiers."""
        return self.planner._install_epoch([TP, OTHER])


@pytest.fixture
def stage_two(monkeypatch: pytest.MonkeyPatch) -> StageTwo:
    """One for each test."""
    return StageTwo(monkeypatch)


def test_a_run_begins_behind_what_was_still_unread(stage_two: StageTwo) -> None:
    """An older run has written ten envelopes that stage two reads one by one: the frontiers are
    those after all of them, though there were some from the beginning.
    """
    stage_two.records[TP] = [3] * 10

    def read_one() -> None:
        for tp, records in stage_two.records.items():
            stage_two.read[tp] = min(len(records), stage_two.read[tp] + 1)

    stage_two.every_pause = read_one
    frontiers = stage_two.install()
    assert frontiers is not None
    epoch = stage_two.planner.epochs.epoch
    assert {frontier.epoch for frontier in frontiers.values()} == {epoch}
    assert (frontiers[TP].source_offset, stage_two.records[TP][10]) == (11, epoch)


def test_an_envelope_that_the_topic_lost_is_written_again(stage_two: StageTwo) -> None:
    """After five seconds, and only to the partition that does not show the epoch."""

    def lose() -> None:
        if stage_two.now_s < 1004:
            stage_two.records[OTHER].clear()
        else:
            stage_two.every_pause = stage_two.read_all
        stage_two.read[TP] = len(stage_two.records[TP])

    stage_two.every_pause = lose
    monotonic = stage_two.now_s
    assert stage_two.install()
    times = {
        tp: [at_s - monotonic for at_s, other in stage_two.writes if other == tp]
        for tp in (TP, OTHER)
    }
    assert times[TP] == [0]
    assert len(times[OTHER]) >= 2


@pytest.mark.parametrize("what", ["no frontier", "not delivered"])
def test_topics_are_prepared_again_when_one_may_be_gone(stage_two: StageTwo, what: str) -> None:
    """A deleted intermediate topic takes its frontiers with it; or nothing can be written to it.
    Not while the cluster is silent: that is no sign of it.
    """

    def sleep_silently() -> None:
        stage_two.is_silent = stage_two.now_s < 1060

    stage_two.every_pause = sleep_silently
    if what == "no frontier":
        stage_two.with_frontier = {TP}
    else:
        stage_two.undelivered = {OTHER}
    assert stage_two.install() is None
    assert stage_two.now_s >= 1060 + run_planner.PREPARE_AGAIN_S - run_planner.PAUSE_S
    stage_two.with_frontier, stage_two.undelivered = {TP, OTHER}, set()
    stage_two.every_pause = stage_two.read_all
    assert stage_two.install()


def test_the_log_says_for_whom_it_waits(
    stage_two: StageTwo, caplog: pytest.LogCaptureFixture
) -> None:
    """And what stage two still has to read there; each ten seconds."""
    caplog.set_level("INFO")
    stage_two.records = {TP: [3] * 7, OTHER: [3] * 40}

    def stand_still() -> None:
        if stage_two.now_s > 1025:
            stage_two.read_all()

    stage_two.every_pause = stand_still
    stage_two.planner.logged_at_s = stage_two.now_s
    assert stage_two.install()
    told = [record.getMessage() for record in caplog.records if "waiting" in record.getMessage()]
    assert len(told) == 2
    assert "to read 43 intermediate records of orders-proxy-1, 10 of orders-proxy-0" in told[0]


def test_an_engine_that_does_not_start_ends_the_wait(stage_two: StageTwo) -> None:
    """A JVM without Java, or a filter that it refuses, has nothing to do with stage two."""

    def fail() -> None:
        raise StageFailed("no Java")

    stage_two.planner.on_waiting = fail
    stage_two.every_pause = lambda: None
    with pytest.raises(StageFailed, match="no Java"):
        stage_two.install()


def test_a_second_plan_has_another_epoch_when_a_run_has_begun(stage_two: StageTwo) -> None:
    """Without a run, it is the same one, and nothing is written."""
    assert stage_two.install()
    first, written = stage_two.planner.epochs.epoch, len(stage_two.writes)
    assert stage_two.install()
    assert (stage_two.planner.epochs.epoch, len(stage_two.writes)) == (first, written)
    stage_two.planner.begin_run()
    assert stage_two.install()
    assert stage_two.planner.epochs.epoch > first
