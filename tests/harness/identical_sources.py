"""Identical sources: several clusters with the same records, and what can happen to one of them."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import TopicPartition

from tests.harness.compared_sides import wait_for_markers
from tests.harness.kafka import ROOT, Cluster, make_record, make_records
from tests.harness.producing import produce_records
from tests.harness.service import Service
from tools.demo.broker import Broker

PARTITIONS = 2
QUICK_FAILOVER = {
    "source_mode": "failover",
    "source_healthcheck_interval_ms": "500",
    "source_request_timeout_ms": "1500",
    "source_backoff_min_ms": "200",
}
PATIENT = {"source_request_timeout_ms": "30000"}
"""Where all candidates live, none is left for a late answer."""
Candidates = tuple[Cluster, ...]


@contextmanager
def start_candidates(folder: Path, number: int) -> Iterator[Candidates]:
    """So many single-node clusters, until the end of the block."""
    brokers = [
        Broker(folder / f"candidate-{place}", ROOT / "jars" / "broker", 384)
        for place in range(number)
    ]
    try:
        for broker in brokers:
            broker.start()
        yield tuple(Cluster(broker.wait()) for broker in brokers)
    finally:
        for broker in brokers:
            broker.kill()


def has_switched(service: Service, to: Iterable[Cluster]) -> bool:
    """Whether the service says that it went over to one of these."""
    return any(
        service.metric("reo_source_switches_total", candidate=candidate.address) for candidate in to
    )


def write_to_all(to: Iterable[Cluster], topic: str, numbers: range) -> None:
    """Write the same records, in the same order, to each cluster."""
    for candidate in to:
        candidate.write(topic, make_records(numbers, PARTITIONS))


def write_with_another(
    candidate: Cluster, topic: str, numbers: range, others: Mapping[int, int]
) -> None:
    """Write the same records but for some, in whose place there are others."""
    candidate.write(
        topic,
        [(number % PARTITIONS, make_record(others.get(number, number))) for number in numbers],
    )


def create_identical_topics(candidates: Candidates, topic: str, records: int = 1000) -> None:
    """Create the topic in every candidate, with the same records: an aborted and a committed
    transaction, then records without a transaction.
    """
    for candidate in candidates:
        candidate.create(topic, PARTITIONS)
        producer = candidate.producer(transactional_id=topic)
        producer.init_transactions(30)
        for commit in (False, True):
            producer.begin_transaction()
            produce_records(producer, topic, make_records(range(10**6, 10**6 + 10), PARTITIONS))
            assert producer.flush(30) == 0
            (producer.commit_transaction if commit else producer.abort_transaction)(30)
            wait_for_markers(candidate, topic)
    write_to_all(candidates, topic, range(records))


def join_addresses(candidates: Iterable[Cluster]) -> str:
    """For `source.bootstrap_servers`."""
    return ";".join(candidate.address for candidate in candidates)


def freeze_broker(candidate: Cluster) -> None:
    """SIGSTOP: connections stay open, nothing responds."""
    assert candidate.broker.process
    candidate.broker.process.send_signal(signal.SIGSTOP)


def kill_broker(candidate: Cluster) -> None:
    """SIGKILL."""
    assert candidate.broker.running
    candidate.broker.kill()


def restore_brokers(candidates: Candidates) -> None:
    """Every one that stands still goes on, and every one that was killed is started again."""
    for candidate in candidates:
        assert candidate.broker.process
        candidate.broker.process.send_signal(signal.SIGCONT)
    dead = [candidate.broker for candidate in candidates if not candidate.broker.running]
    for broker in dead:
        broker.start()
    for broker in dead:
        broker.wait()


def delete_all_records(candidate: Cluster, topic: str) -> None:
    """As retention does."""
    gone = [
        TopicPartition(topic, partition, end)
        for partition, end in candidate.end_offsets(topic).items()
    ]
    for future in candidate.admin.delete_records(gone).values():
        future.result()


def recreate_topic(candidate: Cluster, topic: str, numbers: range) -> None:
    """Another topic of the same name, with these records."""
    candidate.delete(topic)
    candidate.create(topic, PARTITIONS)
    write_to_all((candidate,), topic, numbers)
