"""What cannot be copied exactly ends the service: one clear error, the documented exit code,
nothing written after it, nothing lost.

Most tests begin with a finished first copy (`tests.harness.first_copy`);
`tests/e2e/test_refused_at_start.py` has what is wrong before anything is copied.
"""

from __future__ import annotations

import pytest
from confluent_kafka import ConsumerGroupState, TopicPartition

from common.envelope import EnvelopeRecord, Head
from tests.conftest import Start
from tests.harness.copy_judge import Record
from tests.harness.first_copy import FIRST, PARTITIONS, add_offsets, make_first_copy, more_records
from tests.harness.kafka import Cluster, Clusters, make_record, make_records, until
from tests.harness.service import STOP_S, stopped
from tests.harness.stage_one import (
    RECORDS_MAX,
    Envelopes,
    create_epoch,
    wait_for_frontiers,
    wrap_records,
    write_intermediate,
)
from tools.envelope_encoder import encode


def wrap_more(clusters: Clusters, topic: str) -> Envelopes:
    """Envelopes with what the source gets after the first copy."""
    return wrap_records(clusters, topic, add_offsets(more_records()))


# What changed while nothing ran


@pytest.mark.long  # the simulator tells this story in every run
def test_a_truncated_source_is_refused(clusters: Clusters, topic: str, start: Start) -> None:
    """Records that were deleted at the source before they were copied are missed: how many, and in
    which partition.
    """
    make_first_copy(clusters, topic, start)
    before = clusters.destination.read(topic)
    clusters.source.write(topic, more_records())
    tp = TopicPartition(topic, 1, 60)
    clusters.source.admin.delete_records([tp])[tp].result()
    stopped(start(topic, "--stop-at-end"), 20, "SourceTruncated", f"{topic}-1", "60", "10 offsets")
    assert clusters.destination.read(topic) == before


@pytest.mark.long  # the simulator tells this story in every run
def test_a_recreated_source_is_refused(clusters: Clusters, topic: str, start: Start) -> None:
    """A source topic that was deleted and recreated under the same name is another one, even with
    as many records.
    """
    make_first_copy(clusters, topic, start)
    before = clusters.destination.read(topic)
    clusters.source.delete(topic)
    clusters.source.create(topic, PARTITIONS)
    clusters.source.write(topic, make_records(range(1000, 1000 + 2 * FIRST), PARTITIONS))
    stopped(start(topic, "--stop-at-end"), 21, "SourceRecreated", topic)
    assert clusters.destination.read(topic) == before


@pytest.mark.long  # the simulator tells this story in every run
def test_a_lost_frontier_is_refused(clusters: Clusters, topic: str, start: Start) -> None:
    """A consumer group that was deleted (or has expired) takes the frontier along: the copy is
    neither repeated nor gone on with.
    """
    make_first_copy(clusters, topic, start)
    before = clusters.destination.read(topic)
    group = f"reo-{topic}"
    admin = clusters.destination.admin
    until(
        lambda: (
            admin.describe_consumer_groups([group])[group].result().state
            == ConsumerGroupState.EMPTY
        ),
        "the static member is forgotten",
        STOP_S,
    )
    admin.delete_consumer_groups([group])[group].result()
    stopped(start(topic, "deduplicator"), 22, "FrontierLost", group, topic)
    assert clusters.destination.read(topic) == before


def test_a_foreign_writer_is_noticed(clusters: Clusters, topic: str, start: Start) -> None:
    """A record that somebody else wrote to the destination is found at the next start, as soon as
    there is something to write behind it.
    """
    make_first_copy(clusters, topic, start)
    foreign = Record(b"not", b"ours", (), 1_700_000_000_000)
    clusters.destination.write(topic, [(1, foreign)])
    clusters.source.write(topic, more_records())
    write_intermediate(clusters, topic, topic, wrap_more(clusters, topic))
    stopped(start(topic, "deduplicator"), 25, "ForeignWriter", f"{topic}-1", "offset")
    assert clusters.destination.read(topic)[1][FIRST // PARTITIONS :] == [foreign]


OTHER = Head("1d" * 8, 1, 1, 49, 50)
ENVELOPE = encode(OTHER, [EnvelopeRecord(50, 1, 0, b"k", b"v")])
FOREIGN = {
    "no envelope": Record(b"whose", b"is this"),
    "no value": Record(),
    "cut": Record(None, ENVELOPE[:50]),
    "of another partition": Record(None, encode(OTHER._replace(source_partition=0))),
    "with a header": Record(None, ENVELOPE, (("a", b"b"),)),
}


@pytest.mark.parametrize(
    "foreign",
    [
        pytest.param(name, marks=pytest.mark.long if name != "no envelope" else ())
        for name in FOREIGN
    ],
)
def test_a_foreign_record_on_the_intermediate_topic_stops_stage_two(
    clusters: Clusters, topic: str, start: Start, foreign: str
) -> None:
    """A record that is no valid envelope of its partition: nothing after it is copied, nothing
    before it is lost, and the error says where it is.
    """
    make_first_copy(clusters, topic, start)
    clusters.source.write(topic, more_records())
    of_zero, of_one = (
        [envelope for envelope in wrap_more(clusters, topic) if envelope[0] == partition]
        for partition in range(PARTITIONS)
    )
    at = clusters.destination.end_offsets(f"{topic}-proxy")[1] + 4
    write_intermediate(
        clusters, topic, topic, [*of_zero, *of_one[:4], (1, FOREIGN[foreign]), *of_one[4:]]
    )
    stopped(start(topic, "deduplicator"), 24, "ForeignRecord", f"{topic}-proxy-1", f"offset {at}:")
    source, copy = clusters.source.read(topic), clusters.destination.read(topic)
    assert copy[0] == source[0][: len(copy[0])]
    assert copy[1] == source[1][: len(copy[1])]
    assert FIRST // PARTITIONS <= len(copy[1]) <= FIRST // PARTITIONS + 4 * RECORDS_MAX, (
        "something behind the foreign record was copied, or something was lost"
    )


# What a stage two can be told


def run_of(cluster: Cluster, topic: str) -> dict[int, int]:
    """How many records each partition shows."""
    return {partition: len(records) for partition, records in cluster.read(topic).items()}


def test_a_torn_transaction_is_repaired(clusters: Clusters, topic: str, start: Start) -> None:
    """Records at the destination whose frontier was never committed are recognised, counted, and
    not written a second time.
    """
    make_first_copy(clusters, topic, start)
    clusters.source.write(topic, more_records())
    clusters.destination.write(topic, more_records()[:40])
    write_intermediate(clusters, topic, topic, wrap_more(clusters, topic))
    service = start(topic, "deduplicator")
    clusters.wait_for_copy(topic, 2 * FIRST)
    until(lambda: service.metric("reo_torn_records_total") == 40, "the torn records are counted")
    assert service.metric("reo_torn_records_total", partition="1") == 20
    service.stop()


@pytest.mark.long  # the simulator tells this story in every run
def test_what_is_deleted_unread_is_copied_when_it_is_written_again(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """The intermediate records go while the worker stands still: it goes on at the end, and takes
    the same envelopes when they come again.
    """
    make_first_copy(clusters, topic, start)
    clusters.source.write(topic, more_records())
    service = start(topic, "deduplicator")
    until(lambda: service.http_get("/readyz")[0] == 200, "the worker is a member")
    service.signal("deduplicator", "SIGSTOP")
    unread = wrap_more(clusters, topic)
    # the answer to a fetch that was asked before may have these
    write_intermediate(clusters, topic, topic, unread[:4])
    write_intermediate(clusters, topic, topic, unread[4:])
    everything = [
        TopicPartition(f"{topic}-proxy", partition, end)
        for partition, end in clusters.destination.end_offsets(f"{topic}-proxy").items()
    ]
    for deleted in clusters.destination.admin.delete_records(everything).values():
        deleted.result()
    service.signal("deduplicator", "SIGCONT")
    write_intermediate(clusters, topic, topic, unread[-1:])
    until(
        lambda: service.metric("reo_records_dropped_total", reason="gap") > 0,
        "what is not there any more is missed",
    )
    write_intermediate(clusters, topic, topic, unread)
    clusters.wait_for_copy(topic, 2 * FIRST)
    service.stop()


def test_what_stage_one_repeats_mixes_up_or_leaves_out_does_not_arrive(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """Duplicates, envelopes that overlap, a gap that is filled later, and a zombie of an older
    epoch on the intermediate topic: the copy stays exact, and each record is counted.
    """
    clusters.source.create(topic, 1)
    clusters.source.write(topic, make_records(range(30), 1))
    records = [(0, number, make_record(number)) for number in range(30)]
    service = start(topic, "deduplicator")
    wait_for_frontiers(service, 1)
    epoch = create_epoch()
    whole = wrap_records(clusters, topic, records, epoch)
    overlapping = wrap_records(clusters, topic, records[10:25], epoch)
    zombie = wrap_records(clusters, topic, records, epoch=1)
    write_intermediate(
        clusters,
        topic,
        topic,
        [
            *whole[:2],
            *zombie[:1],
            whole[3],
            *whole[1:3],
            *overlapping,
            *zombie[1:],
            *whole[2:],
            *whole,
        ],
    )
    clusters.wait_for_copy(topic, 30)
    # of whole[1:3], of those that overlap, of whole[2:], and all
    expected = {"duplicate": 7 + (7 + 4) + (7 + 4) + 30, "gap": 7, "stale": 30}
    until(
        lambda: (
            {
                reason: service.metric("reo_records_dropped_total", reason=reason)
                for reason in expected
            }
            == expected
        ),
        "the last are counted too",
    )
    assert run_of(clusters.destination, topic) == {0: 30}
    service.stop()
