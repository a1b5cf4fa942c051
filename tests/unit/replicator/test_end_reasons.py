"""When a run of stage one has to end (`replicator.runs.end_reasons.find_event`). On real brokers:
`tests/broker/test_gaps.py`.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from common.errors import ClusterUnreachable, ReoError, SourceTruncated, TopicMissing
from common.kafka import topics
from common.kafka.topics import Topic
from replicator.runs.end_reasons import GAP_S, STALL_S, find_event
from replicator.runs.snapshot import ClusterSnapshot
from replicator.runs.watch import SLOW_S
from tests.harness.watched_source import EPOCH, HERE, ROUTE, TOPIC, WatchedSource


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> WatchedSource:
    """Ten records, which are copied, and nothing after them."""
    source = WatchedSource(dict.fromkeys(range(10), True))
    source.use(monkeypatch)
    return source


@pytest.mark.parametrize(
    ("frontier", "epoch", "is_superseded"),
    [
        (9, EPOCH, False),  # as it was planned
        (15, EPOCH, False),  # its own records are copied
        (9, EPOCH + 1, True),  # another run has begun
        (9, EPOCH - 1, True),  # stage two has set a frontier that is not of this run
        (8, EPOCH, True),  # the partition was begun again, below this run's first offset
        (-1, EPOCH + 1, True),  # its destination was recreated
    ],
)
def test_a_run_gives_way(
    source: WatchedSource, frontier: int, epoch: int, is_superseded: bool
) -> None:
    """The run begins at source offset 10."""
    source.records |= dict.fromkeys(range(10, 20), True)
    source.frontier, source.frontier_epoch = frontier, epoch
    assert (source.observe(source.build_watch()) == "superseded") == is_superseded


def test_a_gap_that_stays_ends_the_run_also_under_load(source: WatchedSource) -> None:
    """While records flow and more envelopes are dropped: the gap stays where it is for GAP_S, which
    is the verdict.
    """
    watch = source.build_watch()
    source.gap = 14
    source.records |= dict.fromkeys(range(10, 50), True)
    for number in range(int(2 * GAP_S) + 1):
        source.records[50 + number] = True
        source.intermediate_end, source.position = 20 + 2 * number, 6 + number
        assert source.observe(watch) is None
    assert source.observe(watch) == "gap"


@pytest.mark.parametrize("what", ["filled", "another one", "no commit"])
def test_other_gaps_end_no_run(source: WatchedSource, what: str) -> None:
    """A retry fills it, or one comes after another; and while the group does not answer nobody
    knows.
    """
    watch = source.build_watch()
    source.records |= dict.fromkeys(range(10, 50), True)
    source.gap, source.intermediate_end = 14, 30
    source.observe(watch)
    for number in range(30):
        if what == "filled":
            source.frontier = 9 + number
        elif what == "another one":
            source.gap = 14 if number % 8 else None
        else:
            source.has_commit = False
        assert source.observe(watch) is None


@pytest.mark.parametrize("end", [4, TopicMissing("gone"), ClusterUnreachable("no leader")])
def test_an_intermediate_topic_that_lost_envelopes_is_a_gap(
    source: WatchedSource, monkeypatch: pytest.MonkeyPatch, end: int | ReoError
) -> None:
    """Its newest ones, or all of it: what this run has written may be gone. That costs a repeated
    read. Of a topic that is gone the client may say only that it has no leader.
    """
    monkeypatch.setattr(topics, "look_up", lambda *_: {})
    watch = source.build_watch()
    assert source.observe(watch) is None
    source.intermediate_end = end
    assert source.observe(watch) == "gap"


def test_a_cluster_that_does_not_answer_has_not_lost_its_topics(
    source: WatchedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic exists."""
    monkeypatch.setattr(topics, "look_up", lambda *_: {HERE.topic: TOPIC})
    watch = source.build_watch()
    source.intermediate_end = ClusterUnreachable("no leader")
    with pytest.raises(ClusterUnreachable):
        source.observe(watch)


def test_an_intermediate_topic_that_was_emptied_is_read(source: WatchedSource) -> None:
    """Stage two's position stays before its end, since there is nothing to read: a run that writes
    nothing is stalled all the same.
    """
    watch = source.build_watch()
    source.position = 3
    source.records[10] = True
    assert source.observe_for(watch, 2 * STALL_S)[-1] is None
    source.intermediate_beginning = 5
    assert source.observe_for(watch, 2 * STALL_S)[-1] == "stalled"


def test_a_run_that_writes_nothing_is_stalled(source: WatchedSource) -> None:
    """A visible record waits, stage two has read everything: it is not ready after SLOW_S, and
    ended after STALL_S.
    """
    watch = source.build_watch()
    source.observe(watch)
    source.records[10] = True
    events = source.observe_for(watch, SLOW_S)
    assert watch.is_progressing()
    source.observe_for(watch, 1)
    assert not watch.is_progressing()
    events += source.observe_for(watch, STALL_S)
    assert events[-1] == "stalled"
    assert abs(len(events) / 2 + 1 - STALL_S) <= 1.5


def test_what_begins_to_wait_has_its_own_time(source: WatchedSource) -> None:
    """With many partitions, one that has nothing to copy is asked for seldom: what comes then waits
    since the snapshot that shows it, and not since the one before.
    """
    watch = source.build_watch()
    assert source.observe(watch) is None
    source.frontier, source.last_copied = 10, 10
    source.records[10] = True
    assert source.observe(watch) is None
    source.records[11] = True
    assert source.observe(watch, STALL_S + 10) is None
    assert watch.is_progressing()
    assert source.observe_for(watch, STALL_S + 1)[-1] == "stalled"


def test_a_run_is_not_stalled_while_its_tasks_start(source: WatchedSource) -> None:
    """Of 2,000 tasks the last one starts long after the first. A partition that has been copied
    from in this run has no such excuse.
    """
    watch = source.build_watch()
    source.records[10] = True
    source.observe_for(watch, STALL_S - 1)
    before = watch.last_snapshot
    assert before is not None
    assert not before.partitions[HERE].has_progressed
    starting = replace(before, started_at_s=before.taken_at_s)
    later = replace(starting, taken_at_s=before.taken_at_s + 2)
    assert find_event(watch.plan, starting, later) is None
    idle = replace(before.partitions[HERE], has_progressed=True)  # nothing waited at first
    assert find_event(watch.plan, starting, replace(later, asked={HERE: idle})) is None
    written = replace(idle, next_offset=watch.plan.start_offsets[HERE] + 1)
    assert find_event(watch.plan, starting, replace(later, asked={HERE: written})) == "stalled"
    end = replace(starting, taken_at_s=before.taken_at_s + STALL_S + 1)
    assert find_event(watch.plan, starting, end) == "stalled"


@pytest.mark.parametrize("first", [True, False])
def test_a_partition_that_progresses_for_the_first_time_shows_that_tasks_start(
    source: WatchedSource, first: bool
) -> None:
    """Not one that has progressed before."""
    watch = source.build_watch()
    if first:
        source.records[10] = True
    source.observe(watch)
    source.records[10] = True
    began_at_s = source.now_s
    source.observe_for(watch, 5)
    source.intermediate_end = source.position = 6
    source.observe(watch)
    assert watch.last_snapshot is not None
    assert watch.last_snapshot.started_at_s == (source.now_s if first else began_at_s)


@pytest.mark.parametrize("what", ["markers", "stage two reads", "it writes", "it is accepted"])
def test_a_run_with_nothing_to_do_is_not_stalled(source: WatchedSource, what: str) -> None:
    """Nothing visible waits; or stage two has something to read; or something moves."""
    watch = source.build_watch()
    source.records |= dict.fromkeys(range(10, 200), what != "markers")
    if what == "stage two reads":
        source.position -= 1
    for number in range(int(2 * STALL_S) + 10):
        if what == "it writes" and number % 60 == 0:
            source.intermediate_end = source.position = 6 + number
        elif what == "it is accepted" and number % 60 == 0:
            source.frontier += 1
        assert source.observe(watch) is None
        assert watch.is_progressing() or number % 60 > 2 * SLOW_S or number < 60


def test_a_run_is_not_ready_before_it_has_written(source: WatchedSource) -> None:
    """Records wait when it begins: it is ready with the first one that it writes."""
    watch = source.build_watch()
    source.records[10] = True
    source.observe_for(watch, 2)
    assert not watch.is_progressing()
    source.intermediate_end = source.position = 7
    source.observe(watch)
    assert watch.is_progressing()


def test_what_the_source_deletes_before_it_is_copied_ends_the_run(source: WatchedSource) -> None:
    """Nothing is left to wait for, and Real-Time Mode retries an out-of-range read for ever: the
    next plan names the loss. An envelope on its way would have arrived after GAP_S.
    """
    watch = source.build_watch()
    source.records |= dict.fromkeys(range(10, 20), True)
    source.observe(watch)
    source.records = {30: False}
    events = source.observe_for(watch, 60)
    assert events[-1] == "stalled"
    assert len(events) / 2 <= GAP_S + 1


@pytest.mark.parametrize("what", ["it is on its way", "nobody ever saw it"])
def test_what_was_read_before_it_was_deleted_is_no_loss(source: WatchedSource, what: str) -> None:
    """Stage two still reads it; or it was markers, which had been found empty."""
    watch = source.build_watch()
    source.records |= dict.fromkeys(range(10, 20), what == "it is on its way")
    if what == "it is on its way":
        source.intermediate_end = 8
    assert source.observe_for(watch, 3)[-1] is None
    source.records = {20: False}
    assert source.observe_for(watch, 2 * GAP_S)[-1] is None


def test_a_source_that_ends_before_what_was_copied_is_truncated(source: WatchedSource) -> None:
    """Not one with an open transaction, whose last stable offset is lower. The last copied record
    is still there: 10 to 14 are markers.
    """
    watch = source.build_watch()
    source.records |= dict.fromkeys(range(10, 15), False)
    source.frontier, source.open_from, source.last_copied = 14, 12, 9
    assert source.observe(watch) is None
    del source.records[14]
    assert source.observe(watch) == "truncated"


def test_a_source_that_has_grown_is_planned_anew(source: WatchedSource) -> None:
    """A partition more, or another topic."""
    watch = source.build_watch()
    source.observe(watch)
    now = watch.last_snapshot
    assert isinstance(now, ClusterSnapshot)
    more = replace(now, sources={ROUTE: Topic("orders", "id", 2, "cluster")})
    assert find_event(watch.plan, now, more) == "grown"
    other = replace(ROUTE, source_topic="payments")
    assert (
        find_event(watch.plan, now, replace(now, sources={ROUTE: TOPIC, other: TOPIC})) == "grown"
    )
    assert find_event(watch.plan, now, now) is None


def test_a_snapshot_is_not_changed_by_what_follows(source: WatchedSource) -> None:
    """The event depends on two snapshots alone: asked again, it is the same."""
    watch = source.build_watch()
    source.gap = 12
    source.records |= dict.fromkeys(range(10, 20), True)
    snapshots: list[ClusterSnapshot] = []
    for _ in range(14):
        source.observe(watch)
        assert watch.last_snapshot is not None
        snapshots.append(watch.last_snapshot)
    pairs = list(itertools.pairwise(snapshots))
    events = [find_event(watch.plan, before, now) for before, now in pairs]
    assert events == [find_event(watch.plan, before, now) for before, now in pairs]
    assert (events[0], events[-1]) == (None, "gap")
    assert snapshots[-1].partitions[HERE].gap is not None


@pytest.mark.parametrize("what", ["first snapshot", "leader change", "outage", "nothing"])
def test_the_history_is_compared_when_records_can_be_lost(source: WatchedSource, what: str) -> None:
    """In the first snapshot, since the plan may be old; after a leader change; after an outage.
    Not while nothing happens.
    """
    watch = source.build_watch()
    if what != "first snapshot":
        source.observe_for(watch, 5)
    source.compared.clear()
    if what == "leader change":
        source.leader_epoch = 2
    source.observe(watch, seconds=10 if what == "outage" else 0.5)
    assert source.compared == ([] if what == "nothing" else [9])


def test_what_was_read_before_a_loss_is_compared_when_it_is_copied(source: WatchedSource) -> None:
    """The leader changes while three envelopes are unread: until stage two has read them, each new
    last record is compared; the one of the snapshot before the change, too.
    """
    watch = source.build_watch()
    source.records |= dict.fromkeys(range(10, 40), True)
    source.intermediate_end, source.position = 8, 5
    source.observe(watch)
    source.compared.clear()
    source.leader_epoch = 2
    source.intermediate_end = 9
    for frontier, position, end in ((9, 5, 9), (14, 6, 11), (19, 8, 20), (24, 9, 30), (29, 20, 30)):
        source.frontier, source.position, source.intermediate_end = frontier, position, end
        assert source.observe(watch) is None
    assert source.compared == [9, 14, 19, 24]


def test_a_record_that_was_lost_and_is_copied_all_the_same_is_a_stop(source: WatchedSource) -> None:
    """Stage two copies offset 14 after the source has lost it, and has others in its place."""
    watch = source.build_watch()
    source.records |= dict.fromkeys(range(10, 15), True)
    source.intermediate_end, source.position = 6, 5
    source.observe(watch)
    source.records |= dict.fromkeys(range(14, 30), True) | {14: False}
    source.leader_epoch = 2
    assert source.observe(watch) is None
    source.frontier, source.position = 14, 6
    with pytest.raises(SourceTruncated):
        source.observe(watch)
