"""A → B → A: two copies of one topic, one each way, end with every record once on either side (`deduplicator.provenance`).

Both sides are written to by others too, so the copies map by key and are told to append: a destination that is somebody else's as well is not one to one.
"""

from __future__ import annotations

from tests.conftest import Start
from tests.judge import Record
from tests.kafka import Cluster, Clusters, plain, until
from tests.service import Service

HEADER = "via"
COUNT = 20


def via(record: Record, *clusters: Cluster) -> Record:
    """The record with a mark of each cluster behind its headers."""
    ids = [cluster.admin.describe_cluster().result().cluster_id for cluster in clusters]
    return record._replace(headers=(*record.headers, *((HEADER, id_.encode()) for id_ in ids)))


def both_ways(clusters: Clusters, topic: str, start: Start, back: bool, *arguments: str, **more: str) -> Service:
    """A copy from one cluster to the other, or back."""
    source, destination = (clusters.destination, clusters.source) if back else (clusters.source, clusters.destination)
    return start(topic, *arguments, source_bootstrap_servers=source.address, destination_bootstrap_servers=destination.address,
                 application=f"{topic}-{'back' if back else 'there'}", source_topic="", topics=f"{topic}={topic}:key", provenance_header=HEADER,
                 deduplicator_without_frontier="append", **more)


def test_two_copies_end_with_each_record_once_on_either_side(clusters: Clusters, topic: str, start: Start) -> None:
    """There, back and there again: what came from the destination stays, is counted, and nothing goes round; marks tell every record's way."""
    one, other = clusters.source, clusters.destination
    one.create(topic, 1)
    ours, theirs = [plain(number)._replace(headers=()) for number in range(COUNT)], [plain(number) for number in range(COUNT, 2 * COUNT)]
    one.write(topic, [(0, record) for record in ours])
    assert both_ways(clusters, topic, start, False, "--stop-at-end").ends() == 0
    assert other.read(topic)[0] == [via(record, one) for record in ours]

    other.write(topic, [(0, record) for record in theirs])
    assert both_ways(clusters, topic, start, True, "--stop-at-end").ends() == 0
    assert one.read(topic)[0] == ours + [via(record, other) for record in theirs]

    there = both_ways(clusters, topic, start, False)
    until(lambda: there.metric("reo_records_dropped_total", reason="cycle") == COUNT, "what came back is counted")
    assert other.read(topic)[0] == [via(record, one) for record in ours] + theirs
    there.stop()


def test_a_filter_is_asked_before_the_mark(clusters: Clusters, topic: str, start: Start) -> None:
    """The function sees the source's record; the copy has the mark."""
    clusters.source.create(topic, 1)
    records = [plain(number) for number in range(COUNT)]
    clusters.source.write(topic, [(0, record) for record in records])
    assert start(topic, "--stop-at-end", provenance_header=HEADER, filter_function="tests.sieves:unmarked").ends() == 0
    assert clusters.destination.read(topic)[0] == [via(record, clusters.source) for record in records]
