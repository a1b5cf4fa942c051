"""What is missing on the intermediate topic, on a real broker with a stage one of one line: nothing
is accepted over it, it is counted, and a new run heals.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Producer

from common.frontier import Frontier, Hole, Link, RuleState, decode
from common.kafka import partition_offsets
from common.kafka.partition_offsets import GroupCommit
from common.kafka.topics import Topic
from common.routes import Route, TopicPartition
from replicator.cluster_snapshot import ClusterSnapshot
from replicator.open_holes import HOLE_S
from replicator.run import Plan
from replicator.run_watch import Watch
from tests.conftest import Start
from tests.harness.compared_sides import wait_for_markers
from tests.harness.kafka import Clusters, make_record, make_records, until
from tests.harness.recovery import read_commits
from tests.harness.service import Service, stopped
from tests.harness.stage_one import (
    WrappedRecords,
    create_epoch,
    wait_for_frontiers,
    wrap_records,
    write_intermediate,
)

RECORDS = 1200
BATCH = 100
SEED = random.SystemRandom().randrange(10**6)


def source_of(clusters: Clusters, topic: str, records: int, start: Start) -> Service:
    """A source of one partition, and stage two with its frontier; a round takes a part of what is
    there only.
    """
    clusters.source.create(topic, 1)
    clusters.source.write(topic, make_records(range(records), 1))
    service = start(topic, "deduplicator", deduplicator_transaction_records="50")
    wait_for_frontiers(service, 1)
    return service


def batch_of(
    clusters: Clusters, topic: str, begin: int, end: int, epoch: int, batch: int
) -> WrappedRecords:
    """Source records as one Spark batch."""
    return wrap_records(
        clusters,
        topic,
        [(0, number, make_record(number)) for number in range(begin, end)],
        epoch,
        batch,
    )


def state_of(clusters: Clusters, topic: str) -> RuleState:
    """What the group's commit says, when none is undecided."""
    commit = until(
        lambda: read_commits(clusters.destination, topic).get(0), "the commit can be read"
    )
    assert commit
    return decode(commit.metadata).rule


def assert_beginning(clusters: Clusters, topic: str, records: int) -> None:
    """The copy is the source's beginning, of so many records, when its last commit is written."""
    wait_for_markers(clusters.destination, topic)
    assert clusters.destination.read(topic)[0] == clusters.source.read(topic)[0][:records]


def test_no_batch_is_accepted_over_what_a_straggler_made_a_hole(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """A straggler of batch 1 takes the link from batch 2, and fills the first record of the hole.
    Batch 3 stays out; a new run brings all, and counts agree.
    """
    service = source_of(clusters, topic, 5, start)
    epoch = create_epoch()
    first, second, third = (
        batch_of(clusters, topic, begin, end, epoch, number)
        for number, (begin, end) in enumerate(((0, 3), (1, 4), (4, 5)))
    )
    write_intermediate(
        clusters,
        topic,
        topic,
        [first[0], second[0], first[1], second[1], second[2], first[2], *third],
    )
    until(lambda: state_of(clusters, topic).hole == Hole(3, 4), "the hole is in the commit")
    assert_beginning(clusters, topic, 3)
    write_intermediate(clusters, topic, topic, batch_of(clusters, topic, 3, 5, create_epoch(), 7))
    clusters.wait_for_copy(topic, 5)
    assert state_of(clusters, topic).hole is None
    service.wait_for_count(3, "reo_records_dropped_total", reason="hole")
    service.stop()


def test_batches_with_lost_middles_heal_under_load(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """Each second batch loses its middle, all the while others follow. Then it is written again, or
    the next one begins all the same and a new run has to come: what arrives is the source, and each
    record behind a hole was counted.
    """
    service = source_of(clusters, topic, RECORDS, start)
    chance, epoch, held_out = random.Random(SEED), create_epoch(), 0
    print(f"seed {SEED}")
    for number, begin in enumerate(range(0, RECORDS, BATCH)):
        batch = batch_of(clusters, topic, begin, begin + BATCH, epoch, number)
        if number % 2:
            middle = chance.randint(1, BATCH - 10)
            early = (
                batch_of(
                    clusters,
                    topic,
                    begin + BATCH,
                    min(begin + 2 * BATCH, RECORDS),
                    epoch,
                    1000 + number,
                )
                if number % 4 == 1
                else []
            )
            write_intermediate(
                clusters, topic, topic, [*batch[:middle], *batch[middle + 5 :], *early]
            )
            held_out += BATCH - middle - 5 + len(early)
            if early:
                batch = batch_of(
                    clusters, topic, begin, begin + BATCH, epoch := create_epoch(), number
                )
        write_intermediate(clusters, topic, topic, batch)
    clusters.wait_for_copy(topic, RECORDS)
    assert held_out > 0
    service.wait_for_count(held_out, "reo_records_dropped_total", reason="hole")
    service.stop()


def test_what_the_intermediate_topic_lost_is_not_passed_over(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """A whole batch vanishes from its middle (it is in a transaction that was aborted), and the
    next one begins with s = 0: the gap in the offsets is seen, what follows is not believed, and a
    run that has read the raised frontier brings all.
    """
    service = source_of(clusters, topic, 30, start)
    epoch = create_epoch()
    write_intermediate(clusters, topic, topic, batch_of(clusters, topic, 0, 10, epoch, 1))
    until(lambda: state_of(clusters, topic).frontier == 9, "ten are copied")
    service.signal("deduplicator", "SIGSTOP")
    lose(
        clusters.destination.address, f"{topic}-proxy", batch_of(clusters, topic, 10, 20, epoch, 2)
    )
    write_intermediate(clusters, topic, topic, batch_of(clusters, topic, 20, 25, epoch, 3))
    service.signal("deduplicator", "SIGCONT")
    service.wait_for_log("is gone from the intermediate topic")
    until(lambda: state_of(clusters, topic).epoch > epoch, "the frontier is raised above the run")
    write_intermediate(clusters, topic, topic, batch_of(clusters, topic, 25, 30, epoch, 4))
    until(
        lambda: service.metric("reo_records_dropped_total", reason="stale") == 5,
        "the run is not believed any more",
    )
    assert_beginning(clusters, topic, 10)
    write_intermediate(clusters, topic, topic, batch_of(clusters, topic, 10, 30, create_epoch(), 1))
    clusters.wait_for_copy(topic, 30)
    service.stop()


def lose(address: str, topic: str, records: WrappedRecords) -> None:
    """Write what nobody will ever see: the offsets are used all the same."""
    producer = Producer(
        {"bootstrap.servers": address, "transactional.id": f"lost-{topic}", "log_level": 0}
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    for partition, record in records:
        producer.produce(topic, record.value, record.key, partition, headers=list(record.headers))
    assert producer.flush(20) == 0
    producer.abort_transaction(20)


def test_a_compacted_intermediate_topic_is_refused(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """Compaction would take what is not copied yet: said at the start, with the setting."""
    clusters.source.create(topic, 1)
    clusters.destination.create(f"{topic}-proxy", 1, cleanup_policy="compact,delete")
    stopped(
        start(topic, "deduplicator"),
        13,
        "TopicsUnfit",
        f"{topic}-proxy has cleanup.policy=compact,delete",
        "`reo topics --apply`",
    )


# Stage one's watch

PLACE, AT_SOURCE = TopicPartition("copy-proxy", 0), TopicPartition("orders", 0)
EPOCH = 1000
NO_CLIENTS = SimpleNamespace(
    destination_admin=None,
    source_admin=None,
    source_reader=None,
    beat=lambda: None,
    read_up_to_writer=SimpleNamespace(write=lambda *_: None),
)


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
