"""A run is planned when every frontier shows its epoch (`replicator.runs.planner`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from common import clock
from common.envelope import Head
from common.errors import ClusterUnreachable, StageFailed
from common.frontier import Frontier
from common.kafka import partition_offsets
from common.kafka.partition_offsets import GroupCommit
from common.liveness import Liveness
from common.routes import TopicPartition
from replicator.runs.planner import PAUSE_S, PREPARE_AGAIN_S, Planner
from tests.harness.stage_without_engine import NONE_HALTED

TP, OTHER = TopicPartition("orders-proxy", 0), TopicPartition("orders-proxy", 1)


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
            NONE_HALTED,
        )
        monkeypatch.setattr(clock, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(clock, "get_random_bits", lambda _: 7)
        monkeypatch.setattr(clock, "sleep", self.sleep)
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
        return self.planner._install_epoch({TP: TP, OTHER: OTHER})


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
    assert stage_two.now_s >= 1060 + PREPARE_AGAIN_S - PAUSE_S
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


def test_the_log_names_some_of_many_partitions(
    stage_two: StageTwo, caplog: pytest.LogCaptureFixture
) -> None:
    """A start may wait for thousands of first frontiers."""
    caplog.set_level("INFO")
    stage_two.planner._log_waiting([TopicPartition("orders", i) for i in range(3000)], {})
    (told,) = caplog.messages
    assert told.startswith(
        "waiting for stage two to commit the first frontier of orders-0, orders-1"
    )
    assert told.endswith("orders-7 and 2992 more")


def test_what_is_read_is_not_waited_for(
    stage_two: StageTwo, caplog: pytest.LogCaptureFixture
) -> None:
    """Where everything is read, only a commit is missing: nobody waits for 0 records."""
    caplog.set_level("INFO")
    stage_two.records, stage_two.read = {TP: [3] * 7, OTHER: [3] * 40}, {TP: 7, OTHER: 35}
    waiting = stage_two.read_commits(None, [TP, OTHER], 0.0)
    stage_two.planner._log_waiting([], waiting)
    stage_two.read_all()
    stage_two.planner._log_waiting([], stage_two.read_commits(None, [TP, OTHER], 0.0))
    assert caplog.messages == [
        "waiting for stage two to read 5 intermediate records of orders-proxy-1"
    ]


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
