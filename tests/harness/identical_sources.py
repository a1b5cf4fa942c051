"""Identical sources: several clusters with the same records, and one whose broker is stopped."""

from __future__ import annotations

import signal
from collections.abc import Iterable

from tests.harness.kafka import Cluster, make_records
from tests.harness.producing import produce_records

PARTITIONS = 2
QUICK_FAILOVER = {
    "source_mode": "failover",
    "source_healthcheck_interval_ms": "500",
    "source_request_timeout_ms": "1500",
    "source_backoff_min_ms": "200",
    "replicator_drain_s": "2",
}
Candidates = tuple[Cluster, ...]


def write_to_all(to: Iterable[Cluster], topic: str, numbers: range) -> None:
    """Write the same records, in the same order, to each cluster."""
    for candidate in to:
        candidate.write(topic, make_records(numbers, PARTITIONS))


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
    write_to_all(candidates, topic, range(records))


def join_addresses(candidates: Iterable[Cluster]) -> str:
    """For `source.bootstrap_servers`."""
    return ";".join(candidate.address for candidate in candidates)


def freeze_broker(candidate: Cluster) -> None:
    """SIGSTOP: connections stay open, nothing responds."""
    assert candidate.broker.process
    candidate.broker.process.send_signal(signal.SIGSTOP)
