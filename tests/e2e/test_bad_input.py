"""What cannot be copied exactly ends the service: one clear error, the documented exit code,
nothing written after it, nothing lost.

Most tests begin with a finished first copy of 100 records (`copied_before`), made by stage two
alone from records wrapped by hand: no start of Spark.
"""

from __future__ import annotations

import pytest
from confluent_kafka import ConsumerGroupState, TopicPartition

from common.origin import Origin, encode
from tests.conftest import Start
from tests.harness.judge import Record
from tests.harness.kafka import Cluster, Clusters, make_record, make_records, until
from tests.harness.service import STOP_S, deaf_address, stopped
from tests.harness.stage_one import wait_for_frontiers, wrap_records, write_intermediate

FIRST = 100
PARTITIONS = 2
BRIEF = {"connect_timeout_s": "2"}


def more_records() -> list[tuple[int, Record]]:
    """What the source gets after the first copy: in each partition, one with headers, one without,
    …
    """
    return [
        (partition, record if number // PARTITIONS % 2 else record._replace(headers=()))
        for number, (partition, record) in enumerate(
            make_records(range(FIRST, 2 * FIRST), PARTITIONS)
        )
    ]


def numbered(records: list[tuple[int, Record]]) -> list[tuple[int, int, Record]]:
    """(partition, source offset, record): the source has no gaps here."""
    first = int(records[0][1].value[:10])  # type: ignore[index]
    return [
        (partition, (first + number) // PARTITIONS, record)
        for number, (partition, record) in enumerate(records)
    ]


def copied_before(clusters: Clusters, topic: str, start: Start) -> None:
    """Make a source with FIRST records and copy them; the service has stopped when this returns."""
    clusters.source.create(topic, PARTITIONS)
    clusters.source.write(topic, make_records(range(FIRST), PARTITIONS))
    service = start(topic, "deduplicator")
    wait_for_frontiers(service, PARTITIONS)
    write_intermediate(
        clusters,
        topic,
        topic,
        wrap_records(clusters, topic, numbered(make_records(range(FIRST), PARTITIONS))),
    )
    clusters.wait_for_copy(topic, FIRST, STOP_S)
    service.stop()


# Before anything is copied


@pytest.mark.parametrize("side", ["source", "destination"])
def test_a_wrong_address_is_named(clusters: Clusters, topic: str, start: Start, side: str) -> None:
    """A cluster that does not answer ends the start within its time-out, with the side and the
    address in the error.
    """
    clusters.source.create(topic, 1)
    address = deaf_address()
    stopped(
        start(topic, **BRIEF, **{f"{side}_bootstrap_servers": address}),
        10,
        "ClusterUnreachable",
        f"the {side} cluster",
        address,
    )


def test_a_missing_source_topic_is_named(clusters: Clusters, topic: str, start: Start) -> None:
    """No source topic: the error names it, and nothing is created on either side."""
    stopped(start(topic), 11, "TopicMissing", topic)
    assert (
        clusters.source.partitions(topic)
        == clusters.destination.partitions(topic)
        == clusters.destination.partitions(f"{topic}-proxy")
        == 0
    )


def test_a_destination_with_fewer_partitions_is_refused(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """Two partitions cannot hold three; the destination is left as it is."""
    clusters.source.create(topic, 3)
    clusters.destination.create(topic, 2)
    stopped(start(topic), 13, "TopicsUnfit", topic, "2 partitions", "3")
    assert clusters.destination.partitions(topic) == 2


def test_a_destination_that_replaces_timestamps_is_refused(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """With LogAppendTime at the destination no timestamp would survive."""
    clusters.source.create(topic, 1)
    clusters.destination.create(topic, 1, message_timestamp_type="LogAppendTime")
    stopped(start(topic), 13, "TopicsUnfit", topic, "LogAppendTime")


def test_an_intermediate_topic_that_takes_less_than_the_source_is_refused(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """A batch that the source holds has to fit, origin headers included: a producer would split
    what is refused without end.
    """
    clusters.source.create(topic, 1)
    clusters.destination.create(f"{topic}-proxy", 1, max_message_bytes="100000")
    stopped(start(topic), 13, "TopicsUnfit", f"{topic}-proxy", "100000", "1052684")


def test_a_cycle_is_refused(clusters: Clusters, topic: str, start: Start) -> None:
    """The same topic of the same cluster, although the address is written in another way, is not
    copied into itself.
    """
    clusters.source.create(topic, 1)
    clusters.source.write(topic, make_records(range(10), 1))
    other_spelling = clusters.source.address.replace("127.0.0.1", "localhost")
    stopped(start(topic, destination_bootstrap_servers=other_spelling), 14, "Cycle", topic)
    assert clusters.source.count_offsets(topic) == 10


def test_wrong_settings_are_all_listed(clusters: Clusters, topic: str, start: Start) -> None:
    """Unknown, malformed and contradictory settings are one error that lists each of them; no
    client is made, so nothing is created.
    """
    clusters.source.create(topic, 1)
    service = start(
        topic,
        deduplicator_wokers="3",
        metrics_port="many",
        source_start="sometime",
        producer_acks="1",
    )
    assert service.wait_for_exit(STOP_S) == 2
    for words in (
        "4 setting(s) are wrong",
        "REO_DEDUPLICATOR_WOKERS",
        "did you mean REO_DEDUPLICATOR_WORKERS",
        "REO_METRICS_PORT",
        "'many'",
        "REO_SOURCE_START",
        "'sometime'",
        "REO_PRODUCER_ACKS",
    ):
        assert words in service.log, service.log
    assert "Traceback" not in service.log
    assert clusters.destination.partitions(topic) == 0


def test_contradictory_settings_are_refused(clusters: Clusters, topic: str, start: Start) -> None:
    """Settings that are legal alone and not together are one error that names both."""
    service = start(
        topic,
        intermediate_topic=topic,
        deduplicator_session_timeout_ms="60000",
        deduplicator_transaction_timeout_ms="5000",
    )
    assert service.wait_for_exit(STOP_S) == 2
    for words in (
        "2 setting(s) are wrong",
        "REO_INTERMEDIATE_TOPIC and REO_DESTINATION_TOPIC",
        "REO_DEDUPLICATOR_SESSION_TIMEOUT_MS",
        "REO_DEDUPLICATOR_TRANSACTION_TIMEOUT_MS",
    ):
        assert words in service.log, service.log


def test_a_destination_with_records_but_no_frontier_is_refused(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """Somebody's records at the destination and no frontier: nothing is written behind them."""
    clusters.source.create(topic, 1)
    clusters.source.write(topic, make_records(range(10), 1))
    clusters.destination.create(topic, 1)
    clusters.destination.write(topic, make_records(range(5), 1))
    stopped(start(topic), 22, "FrontierLost", f"{topic}-0", "append")
    assert len(clusters.destination.read(topic)[0]) == 5


# What changed while nothing ran


@pytest.mark.long  # the simulator tells this story in every run
def test_a_truncated_source_is_refused(clusters: Clusters, topic: str, start: Start) -> None:
    """Records that were deleted at the source before they were copied are missed: how many, and in
    which partition.
    """
    copied_before(clusters, topic, start)
    before = clusters.destination.read(topic)
    clusters.source.write(topic, more_records())
    place = TopicPartition(topic, 1, 60)
    clusters.source.admin.delete_records([place])[place].result()
    stopped(start(topic, "--stop-at-end"), 20, "SourceTruncated", f"{topic}-1", "60", "10 offsets")
    assert clusters.destination.read(topic) == before


@pytest.mark.long  # the simulator tells this story in every run
def test_a_recreated_source_is_refused(clusters: Clusters, topic: str, start: Start) -> None:
    """A source topic that was deleted and recreated under the same name is another one, even with
    as many records.
    """
    copied_before(clusters, topic, start)
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
    copied_before(clusters, topic, start)
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
    copied_before(clusters, topic, start)
    foreign = Record(b"not", b"ours", (), 1_700_000_000_000)
    clusters.destination.write(topic, [(1, foreign)])
    clusters.source.write(topic, more_records())
    write_intermediate(
        clusters, topic, topic, wrap_records(clusters, topic, numbered(more_records()))
    )
    stopped(start(topic, "deduplicator"), 25, "ForeignWriter", f"{topic}-1", "offset")
    assert clusters.destination.read(topic)[1][FIRST // PARTITIONS :] == [foreign]


FOREIGN = {
    "no header": (),
    "no origin": (("__origin", b"no origin"),),
    "null": (("__origin", None),),
    "not last": (("__origin", encode(Origin(1, 50, 1, 0, 1, 1, 0, "1d" * 8))), ("a", b"b")),
}


@pytest.mark.parametrize(
    "foreign",
    [pytest.param(name, marks=pytest.mark.long if name != "no origin" else ()) for name in FOREIGN],
)
def test_a_foreign_record_on_the_intermediate_topic_stops_stage_two(
    clusters: Clusters, topic: str, start: Start, foreign: str
) -> None:
    """A record without a valid origin header: nothing after it is copied, nothing before it is
    lost, and the error says where it is.
    """
    copied_before(clusters, topic, start)
    clusters.source.write(topic, more_records())
    whole = wrap_records(clusters, topic, numbered(more_records()))
    write_intermediate(clusters, topic, topic, whole[:50])
    write_intermediate(
        clusters, topic, topic, [(1, Record(b"whose", b"is this", FOREIGN[foreign]))]
    )
    write_intermediate(clusters, topic, topic, whole[50:])
    stopped(
        start(topic, "deduplicator"),
        24,
        "ForeignRecord",
        f"{topic}-proxy-1",
        f"offset {FIRST // PARTITIONS + 25}",
    )
    source, copy = clusters.source.read(topic), clusters.destination.read(topic)
    assert copy[0] == source[0][: len(copy[0])]
    assert copy[1] == source[1][: len(copy[1])]
    assert FIRST // PARTITIONS <= len(copy[1]) <= FIRST // PARTITIONS + 25, (
        "something behind the foreign record was copied, or something was lost"
    )


# What a stage two can be told


def run_of(cluster: Cluster, topic: str) -> dict[int, int]:
    """How many records each partition shows."""
    return {partition: len(records) for partition, records in cluster.read(topic).items()}


def test_a_torn_transaction_is_mended(clusters: Clusters, topic: str, start: Start) -> None:
    """Records at the destination whose frontier was never committed are recognised, counted, and
    not written a second time.
    """
    copied_before(clusters, topic, start)
    clusters.source.write(topic, more_records())
    clusters.destination.write(topic, more_records()[:40])
    write_intermediate(
        clusters, topic, topic, wrap_records(clusters, topic, numbered(more_records()))
    )
    service = start(topic, "deduplicator")
    clusters.wait_for_copy(topic, 2 * FIRST)
    until(lambda: service.metric("reo_torn_records_total") == 40, "the torn records are counted")
    assert service.metric("reo_torn_records_total", partition="1") == 20
    service.stop()


@pytest.mark.long  # the simulator tells this story in every run
def test_what_is_deleted_unread_is_believed_from_the_next_run_only(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """The intermediate records go while the worker stands still: it reads its frontier again, and
    takes them from a run that began afterwards.
    """
    copied_before(clusters, topic, start)
    clusters.source.write(topic, more_records())
    service = start(topic, "deduplicator")
    until(lambda: service.http_get("/readyz")[0] == 200, "the worker is a member")
    service.signal("deduplicator", "SIGSTOP")
    unread = wrap_records(clusters, topic, numbered(more_records()))
    # the answer to a fetch that was asked before may have these
    write_intermediate(clusters, topic, topic, unread[:50])
    write_intermediate(clusters, topic, topic, unread[50:])
    everything = [
        TopicPartition(f"{topic}-proxy", partition, end)
        for partition, end in clusters.destination.end_offsets(f"{topic}-proxy").items()
    ]
    for deleted in clusters.destination.admin.delete_records(everything).values():
        deleted.result()
    service.signal("deduplicator", "SIGCONT")
    until(lambda: service.metric("reo_frontier_rereads_total") >= 1, "the frontier is read again")
    service.wait_for_log("is gone from the intermediate topic")
    write_intermediate(
        clusters, topic, topic, wrap_records(clusters, topic, numbered(more_records()))
    )
    clusters.wait_for_copy(topic, 2 * FIRST)
    service.stop()


def test_what_stage_one_repeats_mixes_up_or_leaves_out_does_not_arrive(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """Duplicates, a hole that is filled later, and a zombie of an older epoch on the intermediate
    topic: the copy stays exact, and each is counted.
    """
    clusters.source.create(topic, 1)
    clusters.source.write(topic, make_records(range(30), 1))
    records = [(0, number, make_record(number)) for number in range(30)]
    service = start(topic, "deduplicator")
    wait_for_frontiers(service, 1)
    whole = wrap_records(clusters, topic, records)
    zombie = wrap_records(clusters, topic, records, epoch=1)
    write_intermediate(
        clusters,
        topic,
        topic,
        [*whole[:10], *zombie[:3], *whole[12:20], *whole[5:15], *zombie[3:], *whole[10:], *whole],
    )
    clusters.wait_for_copy(topic, 30)
    expected = {"duplicate": 5 + 5 + 30, "hole": 8, "stale": 30}
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
