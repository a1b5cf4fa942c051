"""Both sides of a comparison, written by hand, so that a difference can be planted."""

from __future__ import annotations

from collections.abc import Sequence

from tests.harness.copy_judge import Record
from tests.harness.kafka import Cluster, Clusters, until
from tests.harness.producing import produce_records
from tests.harness.transactional_copy import placed as with_offsets

PARTITIONS = 2
RECORDS = 60


def both_sides(
    clusters: Clusters,
    topic: str,
    source: Sequence[tuple[int, Record]],
    destination: Sequence[tuple[int, Record]],
    **config: str,
) -> None:
    """A topic and its copy; the copy's offsets are others, because it is written in
    transactions.
    """
    clusters.source.create(topic, PARTITIONS, **config)
    clusters.destination.create(topic, PARTITIONS, **config)
    clusters.source.write(topic, source)
    producer = clusters.destination.producer(transactional_id=f"{topic}-copy")
    producer.init_transactions(30)
    for begin in range(0, len(destination), 7):
        producer.begin_transaction()
        produce_records(producer, topic, destination[begin : begin + 7])
        producer.commit_transaction(30)
    wait_for_markers(clusters.destination, topic)


def wait_for_markers(cluster: Cluster, topic: str) -> None:
    """Wait until no transaction is open on the topic: a commit is answered before its markers are
    written.
    """
    until(
        lambda: cluster.end_offsets(topic) == cluster.end_offsets(topic, stable=True),
        "the markers are written",
    )


def change_headers(record: Record) -> Record:
    """With another header."""
    return record._replace(headers=(("other", b"1"),))


def read_first_partition(clusters: Clusters, topic: str) -> list[tuple[int, Record]]:
    """The copy's records of partition 1 with their offsets, as any reader sees them."""
    return with_offsets(clusters.destination, topic, begins=dict.fromkeys(range(PARTITIONS), 0))[1]
