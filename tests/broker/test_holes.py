"""What is missing on the intermediate topic, on a real broker with a stage one of one line: nothing
is accepted over it, it is counted, and a new run heals.
"""

from __future__ import annotations

import random

from confluent_kafka import Producer

from common.frontier import Hole, RuleState, decode
from tests.conftest import Start
from tests.harness.compared_sides import wait_for_markers
from tests.harness.kafka import Clusters, make_record, make_records, until
from tests.harness.recovery import read_commits
from tests.harness.service import CERTAIN_COMMITS, Service, stopped
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
    service = start(topic, "deduplicator", deduplicator_transaction_records="50", **CERTAIN_COMMITS)
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
    assert service.metric("reo_records_dropped_total", reason="hole") == 3
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
    assert service.metric("reo_records_dropped_total", reason="hole") == held_out > 0
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
