"""A → B → A: two copies of one topic, one each way, end with every record once on either side
(`deduplicator.provenance`).

Both sides are written to by others too, so the copies map by key and are told to append: a
destination that is somebody else's as well is not one to one.
"""

from __future__ import annotations

from tests.conftest import Start
from tests.harness.copy_judge import Record
from tests.harness.kafka import Cluster, Clusters, make_record, until
from tests.harness.recovery import add_source_offsets
from tests.harness.service import CERTAIN_COMMITS, Service
from tests.harness.stage_one import wait_for_frontiers, wrap_records, write_intermediate

HEADER = "via"
COUNT = 20


def via(record: Record, *clusters: Cluster) -> Record:
    """The record with a mark of each cluster behind its headers."""
    ids = [cluster.cluster_id() for cluster in clusters]
    return record._replace(headers=(*record.headers, *((HEADER, id_.encode()) for id_ in ids)))


def both_ways(clusters: Clusters, topic: str, start: Start, back: bool) -> tuple[Clusters, Service]:
    """Stage two of a copy from one cluster to the other, or back, with its frontier; and the
    clusters as this copy sees them.
    """
    way = Clusters(clusters.destination, clusters.source) if back else clusters
    service = start(
        topic,
        "deduplicator",
        source_bootstrap_servers=way.source.address,
        destination_bootstrap_servers=way.destination.address,
        application=f"{topic}-{'back' if back else 'there'}",
        source_topic="",
        topics=f"{topic}={topic}:key",
        provenance_header=HEADER,
        deduplicator_without_frontier="append",
        **CERTAIN_COMMITS,
    )
    wait_for_frontiers(service, 1)
    return way, service


def pass_on(way: Clusters, topic: str, begin: int = 0) -> None:
    """What stage one does with the source's records from the one with this number on."""
    write_intermediate(
        way,
        topic,
        topic,
        wrap_records(
            way,
            topic,
            add_source_offsets([(0, record) for record in way.source.read(topic)[0]], begin),
        ),
    )


def test_two_copies_end_with_each_record_once_on_either_side(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """There, back and there again: what came from the destination stays, is counted, and nothing
    goes round; marks tell every record's way.
    """
    one, other = clusters.source, clusters.destination
    one.create(topic, 1)
    ours, theirs = (
        [make_record(number)._replace(headers=()) for number in range(COUNT)],
        [make_record(number) for number in range(COUNT, 2 * COUNT)],
    )
    one.write(topic, [(0, record) for record in ours])
    way_there, there = both_ways(clusters, topic, start, False)
    pass_on(way_there, topic)
    until(lambda: other.read(topic)[0] == [via(record, one) for record in ours], "there")

    other.write(topic, [(0, record) for record in theirs])
    way_back, back = both_ways(clusters, topic, start, True)
    pass_on(way_back, topic)
    until(
        lambda: one.read(topic)[0] == ours + [via(record, other) for record in theirs], "and back"
    )
    until(
        lambda: back.metric("reo_records_dropped_total", reason="cycle") == COUNT,
        "what came from there is counted",
    )

    pass_on(way_there, topic, COUNT)
    until(
        lambda: there.metric("reo_records_dropped_total", reason="cycle") == COUNT,
        "what came back is counted",
    )
    assert other.read(topic)[0] == [via(record, one) for record in ours] + theirs
    there.stop()
    back.stop()


def test_a_filter_is_asked_before_the_mark(clusters: Clusters, topic: str, start: Start) -> None:
    """The function sees the source's record; the copy has the mark."""
    clusters.source.create(topic, 1)
    records = [make_record(number) for number in range(COUNT)]
    clusters.source.write(topic, [(0, record) for record in records])
    service = start(
        topic,
        "deduplicator",
        provenance_header=HEADER,
        filter_function="tests.harness.filter_functions:unmarked",
    )
    wait_for_frontiers(service, 1)
    pass_on(clusters, topic)
    until(
        lambda: (
            clusters.destination.read(topic)[0]
            == [via(record, clusters.source) for record in records]
        ),
        "the copy has the marks",
    )
    service.stop()
