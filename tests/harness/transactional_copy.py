"""A source of transactions of different sizes, aborted ones among them, and its copy in other
transactions: no offset of one side is the other's.
"""

from __future__ import annotations

from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.harness.copy_judge import Record, to_record
from tests.harness.kafka import Cluster, Clusters, make_record, until
from tests.harness.producing import produce_records
from tests.harness.service import Service
from tests.harness.stage_one import wait_for_frontiers, wrap_records, write_intermediate

PARTITIONS = 2
TRANSACTIONS = (
    (True, 4),
    (False, 2),
    (True, 1),
    (True, 5),
    (False, 1),
    (False, 1),
    (True, 3),
    (True, 2),
    (False, 2),
)
SMALL = {"deduplicator_transaction_records": "5"}
Placed = list[tuple[int, Record]]
"""What a read_committed reader sees of one partition, with offsets."""


def placed(
    cluster: Cluster, topic: str, group: str = "reader", begins: dict[int, int] | None = None
) -> dict[int, Placed]:
    """Every visible record with its offset: from the given offsets on, or from where the group
    stands, which then has to be known.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.address,
            "group.id": group,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found: dict[int, Placed] = {partition: [] for partition in range(cluster.partitions(topic))}
    consumer.assign(
        [
            (
                TopicPartition(topic, partition, begins[partition])
                if begins
                else TopicPartition(topic, partition)
            )
            for partition in found
        ]
    )
    unfinished = set(found)
    try:
        while unfinished:
            for message in consumer.consume(1000, 0.2):
                if message.error() is None:
                    found[message.partition()].append((message.offset(), to_record(message)))
                else:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    unfinished.discard(message.partition())
    finally:
        consumer.close()
    return found


def write_transactions(source: Cluster, topic: str, first: int = 0) -> None:
    """Of every partition, committed and aborted."""
    producer = source.producer(transactional_id=f"{topic}-{first}")
    producer.init_transactions(30)
    for place, (committed, size) in enumerate(TRANSACTIONS):
        producer.begin_transaction()
        produce_records(
            producer,
            topic,
            [
                (partition, make_record(first + 100 * place + number))
                for partition in range(PARTITIONS)
                for number in range(size + partition)
            ],
        )
        assert producer.flush(30) == 0
        (producer.commit_transaction if committed else producer.abort_transaction)(30)


def copy(
    clusters: Clusters, topic: str, service: Service, begins: dict[int, int] | None = None
) -> None:
    """Have stage two copy what the source shows, from the given offsets on."""
    wait_for_frontiers(service, PARTITIONS)
    shown = placed(clusters.source, topic, begins=begins or dict.fromkeys(range(PARTITIONS), 0))
    before = sum(map(len, clusters.destination.read(topic).values()))
    # aborted records are between the frontier and the first of these
    after = {
        partition: int(service.metric("reo_frontier_offset", topic=topic, partition=str(partition)))
        for partition in shown
    }
    write_intermediate(
        clusters,
        topic,
        topic,
        wrap_records(
            clusters,
            topic,
            [(partition, *at) for partition, records in shown.items() for at in records],
            after=after,
        ),
    )
    number = before + sum(map(len, shown.values()))
    until(
        lambda: sum(map(len, clusters.destination.read(topic).values())) == number, "all is copied"
    )
    until(
        lambda: all(
            service.metric("reo_frontier_offset", topic=topic, partition=str(partition))
            == records[-1][0]
            for partition, records in shown.items()
            if records
        ),
        "and the frontiers are there",
    )


class Copy(NamedTuple):
    """A finished copy, of which the service still runs."""

    topic: str
    source: dict[int, Placed]
    destination: dict[int, Placed]


def positions_of(copied: Copy, offsets: dict[int, int]) -> dict[int, int]:
    """Where these source offsets are at the destination, by counting what a reader sees of both
    sides.
    """
    unread = {
        partition: sum(at >= offset for at, _ in copied.source[partition])
        for partition, offset in offsets.items()
    }
    return {
        partition: (
            records[len(records) - unread[partition]][0]
            if unread[partition]
            else records[-1][0] + 1
        )
        for partition, records in copied.destination.items()
        if partition in offsets
    }
