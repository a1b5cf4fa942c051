"""/readyz and the lag of stage two on real servers that stand still and go on, with a stage one of
one line.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

import pytest

from tests.conftest import Start
from tests.harness.kafka import Cluster, Clusters, make_records, until
from tests.harness.recovery import add_source_offsets
from tests.harness.service import Service
from tests.harness.stage_one import wait_for_frontiers, wrap_records, write_intermediate

RECORDS = 100
QUICK = {"deduplicator_transaction_timeout_ms": "6000", "deduplicator_session_timeout_ms": "6000"}


@contextlib.contextmanager
def freeze_broker(cluster: Cluster) -> Iterator[None]:
    """SIGSTOP: connections stay, nothing answers."""
    assert cluster.broker.process
    cluster.broker.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        cluster.broker.process.send_signal(signal.SIGCONT)


def is_ready(service: Service) -> None:
    """Wait until it says so."""
    until(lambda: service.http_get("/readyz") == (200, "ok\n"), "the service is ready", 40)


def waits_for(service: Service, what: str) -> None:
    """Wait until it says so, and until the lag shows that nobody knows it."""
    until(
        lambda: service.http_get("/readyz")[0] == 503 and what in service.http_get("/readyz")[1],
        f"the service waits for {what}",
        30,
    )
    until(lambda: service.metric("reo_lag_seconds", stage="deduplicator") > 1, "the lag grows", 30)
    assert service.metric("reo_ready", stage="deduplicator") == 0
    assert service.http_get("/livez")[0] == 200


@pytest.mark.parametrize("busy", [False, True], ids=["nothing to do", "in the middle of the work"])
def test_a_destination_that_stands_still(
    clusters: Clusters, topic: str, start: Start, busy: bool
) -> None:
    """With and without something to do: not ready, with the reason, and lagging; then ready, and
    exact.
    """
    clusters.source.create(topic, 1)
    service = start(topic, "deduplicator", deduplicator_transaction_records="1", **QUICK)
    wait_for_frontiers(service, 1)
    is_ready(service)
    if busy:
        written = make_records(range(RECORDS), 1)
        clusters.source.write(topic, written)
        write_intermediate(
            clusters, topic, topic, wrap_records(clusters, topic, add_source_offsets(written))
        )
        until(
            lambda: service.metric("reo_transactions_total", outcome="committed") >= 2,
            "transactions run",
        )
    with freeze_broker(clusters.destination):
        waits_for(service, "an answer of the destination cluster")
    is_ready(service)
    if busy:
        clusters.wait_for_copy(topic, RECORDS)
    until(lambda: service.metric("reo_lag_seconds", stage="deduplicator") == 0, "nothing waits")
    service.stop()


def test_a_spare_worker_is_ready(clusters: Clusters, topic: str, start: Start) -> None:
    """Of two workers on one partition one has nothing to ask for: it is ready all the same, and so
    is the service.
    """
    clusters.source.create(topic, 1)
    service = start(topic, "deduplicator", deduplicator_workers="2")
    is_ready(service)
    # the first one may have been ready before the group had the second one too
    until(
        lambda: (
            [
                service.metric("reo_ready", stage="deduplicator", worker=str(worker))
                for worker in range(2)
            ]
            == [1, 1]
        ),
        "both are ready",
    )
    service.stop()
