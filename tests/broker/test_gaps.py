"""What is missing on the intermediate topic, on a real broker with a stage one of one line: nothing
is accepted over it, it is counted, and a new run heals.
"""

from __future__ import annotations

import random

from confluent_kafka import Producer

from common.frontier import Frontier, decode
from tests.conftest import Start
from tests.harness.compared_sides import wait_for_markers
from tests.harness.kafka import Clusters, make_record, make_records, until
from tests.harness.recovery import read_commits
from tests.harness.service import CERTAIN_COMMITS, Service, stopped
from tests.harness.stage_one import (
    RECORDS_MAX,
    Envelopes,
    create_epoch,
    wait_for_frontiers,
    wrap_records,
    write_intermediate,
)

RECORDS = 1200
PART = 100
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


def wrap_range(clusters: Clusters, topic: str, begin: int, end: int, epoch: int) -> Envelopes:
    """Source records as envelopes of a run, which follow each other."""
    records = [(0, number, make_record(number)) for number in range(begin, end)]
    return wrap_records(clusters, topic, records, epoch)


def frontier_of(clusters: Clusters, topic: str) -> Frontier:
    """What the group's commit says, when none is undecided."""
    commit = until(
        lambda: read_commits(clusters.destination, topic).get(0), "the commit can be read"
    )
    assert commit
    return decode(commit.metadata)


def assert_beginning(clusters: Clusters, topic: str, records: int) -> None:
    """The copy is the source's beginning, of so many records, when its last commit is written."""
    wait_for_markers(clusters.destination, topic)
    assert clusters.destination.read(topic)[0] == clusters.source.read(topic)[0][:records]


def test_nothing_is_accepted_after_a_gap(clusters: Clusters, topic: str, start: Start) -> None:
    """The second envelope of a run is missing: the third one stays out, and the gap is in the
    commit. A straggler fills it in part; a new run brings all, and counts agree.
    """
    service = source_of(clusters, topic, 4 * RECORDS_MAX, start)
    epoch = create_epoch()
    first, second, third, fourth = wrap_range(clusters, topic, 0, 4 * RECORDS_MAX, epoch)
    write_intermediate(clusters, topic, topic, [first, third, fourth])
    until(lambda: frontier_of(clusters, topic).gap == 2 * RECORDS_MAX - 1, "the gap is committed")
    assert_beginning(clusters, topic, RECORDS_MAX)
    write_intermediate(clusters, topic, topic, [second])
    until(lambda: frontier_of(clusters, topic).gap is None, "the gap is filled")
    assert_beginning(clusters, topic, 2 * RECORDS_MAX)
    begin = frontier_of(clusters, topic).source_offset + 1
    again = wrap_range(clusters, topic, begin, 4 * RECORDS_MAX, create_epoch())
    write_intermediate(clusters, topic, topic, again)
    clusters.wait_for_copy(topic, 4 * RECORDS_MAX)
    assert service.metric("reo_records_dropped_total", reason="gap") == 2 * RECORDS_MAX
    service.stop()


def test_lost_middles_heal_under_load(clusters: Clusters, topic: str, start: Start) -> None:
    """Each second part loses an envelope in its middle, all the while others follow. Then it is
    written again, or the next part is written all the same and a new run has to come: what arrives
    is the source, and each record after a gap was counted.
    """
    service = source_of(clusters, topic, RECORDS, start)
    chance, epoch, held_out = random.Random(SEED), create_epoch(), 0
    print(f"seed {SEED}")
    for number, begin in enumerate(range(0, RECORDS, PART)):
        part = wrap_range(clusters, topic, begin, begin + PART, epoch)
        if number % 2:
            lost = chance.randrange(len(part) - 1)
            next_end = min(begin + 2 * PART, RECORDS)
            early = (
                wrap_range(clusters, topic, begin + PART, next_end, epoch)
                if number % 4 == 1
                else []
            )
            write_intermediate(clusters, topic, topic, [*part[:lost], *part[lost + 1 :], *early])
            held_out += PART - (lost + 1) * RECORDS_MAX + (next_end - begin - PART if early else 0)
            if early:
                epoch = create_epoch()
                part = wrap_range(clusters, topic, begin, begin + PART, epoch)
        write_intermediate(clusters, topic, topic, part)
    clusters.wait_for_copy(topic, RECORDS)
    assert service.metric("reo_records_dropped_total", reason="gap") == held_out > 0
    service.stop()


def test_what_the_intermediate_topic_lost_is_not_passed_over(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """Envelopes vanish from its middle (they are in a transaction that was aborted): what follows
    begins after them and stays out. A run from the frontier on brings all.
    """
    service = source_of(clusters, topic, 30, start)
    epoch = create_epoch()
    write_intermediate(clusters, topic, topic, wrap_range(clusters, topic, 0, 10, epoch))
    until(lambda: frontier_of(clusters, topic).source_offset == 9, "ten are copied")
    service.signal("deduplicator", "SIGSTOP")
    lose(
        clusters.destination.address,
        f"{topic}-proxy",
        wrap_range(clusters, topic, 10, 20, epoch),
    )
    write_intermediate(clusters, topic, topic, wrap_range(clusters, topic, 20, 25, epoch))
    service.signal("deduplicator", "SIGCONT")
    until(lambda: frontier_of(clusters, topic).gap == 19, "the gap is committed")
    write_intermediate(clusters, topic, topic, wrap_range(clusters, topic, 25, 30, epoch))
    until(
        lambda: service.metric("reo_records_dropped_total", reason="gap") == 10,
        "nothing of this run is accepted any more",
    )
    assert_beginning(clusters, topic, 10)
    write_intermediate(clusters, topic, topic, wrap_range(clusters, topic, 10, 30, create_epoch()))
    clusters.wait_for_copy(topic, 30)
    service.stop()


def lose(address: str, topic: str, envelopes: Envelopes) -> None:
    """Write what nobody will ever see: the offsets are used all the same."""
    producer = Producer(
        {"bootstrap.servers": address, "transactional.id": f"lost-{topic}", "log_level": 0}
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    for partition, record in envelopes:
        producer.produce(topic, record.value, record.key, partition)
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
