"""The brokers' own quotas, by client id: each client that records pass through can be held, and the
copy is slower and exact.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import pytest

from tests.conftest import Start
from tests.harness.java import Limit, quotas
from tests.harness.kafka import COPY_S, Clusters, make_record, until
from tests.harness.service import Service
from tests.harness.stage_one import wait_for_frontiers, wrap_records, write_intermediate

RATE = 150_000
"""Bytes a second. The tests' brokers look back on 3 s (tests/conftest.py): so long a client may
take twice the rate.
"""
RECORDS, SIZE = 1200, 1000
LEAST_S = 3.0
"""The bytes by the rate, less what the window lets through at once and the request that is on its
way.
"""
HELD = (
    ("source", "consumer_byte_rate", ("replicator-source",), "replicator"),
    ("destination", "producer_byte_rate", ("replicator-intermediate",), "replicator"),
    ("destination", "consumer_byte_rate", ("deduplicator-0",), "deduplicator"),
    ("destination", "producer_byte_rate", ("deduplicator-0-a", "deduplicator-0-b"), "deduplicator"),
)


def measure_copy_s(
    clusters: Clusters, service: Service, topic: str, first: int, lagging: str | None
) -> tuple[float, bool]:
    """Write RECORDS from this number on, wait until they are copied, and return the seconds, and
    whether the stage was seen to lag meanwhile, in records and in seconds.
    """
    began = time.monotonic()
    clusters.source.write(
        topic,
        [(0, make_record(number, SIZE)) for number in range(first, first + RECORDS)],
        batch_size=16384,
    )
    lagged = False

    def is_seen() -> bool:
        nonlocal lagged
        lagged = lagging is not None and (
            service.metric("reo_lag_records", stage=lagging) > 0
            and service.metric("reo_lag_seconds", stage=lagging) > 0
        )
        return lagged or clusters.destination.count_offsets(topic) >= first + RECORDS

    until(is_seen, f"{lagging} lags, or all is copied", COPY_S)
    clusters.wait_for_copy(topic, first + RECORDS)
    return time.monotonic() - began, lagged


def count_ends(service: Service) -> float:
    """Runs and processes that have ended, and transactions that are not committed."""
    return (
        service.metric("reo_runs_total")
        + service.metric("reo_stage_restarts_total")
        + service.metric("reo_transactions_total", outcome="aborted")
        + service.metric("reo_transactions_total", outcome="unknown")
    )


def measure_without_harm(
    clusters: Clusters, service: Service, topic: str, parts: Iterator[int], lagging: str
) -> float:
    """The seconds of a copy in which the stage was seen to lag, and nothing ended.

    A machine that stands still ends something too, or hides the lag, so it is tried up to three
    times: a quota that harms does so each time.
    """
    for _ in range(3):
        before = count_ends(service)
        took_s, lagged = measure_copy_s(clusters, service, topic, next(parts) * RECORDS, lagging)
        if lagged and count_ends(service) == before:
            return took_s
    raise AssertionError(f"{lagging} lags: {lagged}; or something ended: {service.read_log_tail()}")


@pytest.mark.long
def test_a_quota_holds_each_stage_without_harm(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """Each of the clients by its documented id: as slow as the quota says, quick without it, and
    exact; no run, transaction or process ends for it.
    """
    clusters.source.create(topic, 1)
    service = start(topic, client_id=topic, deduplicator_transaction_records="100")
    until(lambda: service.http_get("/readyz")[0] == 200, "the service is ready", COPY_S)
    parts = itertools.count()
    measure_copy_s(clusters, service, topic, next(parts) * RECORDS, None)
    took = {}
    for side, kind, roles, stage in HELD:
        with quotas(getattr(clusters, side).address) as limit:
            for role in roles:
                limit(f"{topic}-{role}", kind, RATE / len(roles))
            took[kind, roles] = measure_without_harm(clusters, service, topic, parts, stage)
    assert min(took.values()) > LEAST_S, took
    # a machine that is busy just now is slow too, for a time
    until(
        lambda: (
            measure_copy_s(clusters, service, topic, next(parts) * RECORDS, None)[0]
            < min(took.values())
        ),
        f"it is quick again: {took}",
    )
    until(lambda: service.metric("reo_lag_seconds") == 0, "nothing lags behind")
    service.stop()


@pytest.fixture
def thin(clusters: Clusters, topic: str) -> object:
    """A quota with which stage two writes a megabyte in ten seconds, as long as it takes."""
    with quotas(clusters.destination.address) as limit:
        for letter in "ab":
            _thin(limit, f"{topic}-deduplicator-0-{letter}")
        yield


def _thin(limit: Limit, client: str) -> None:
    limit(client, "producer_byte_rate", 100_000)


@pytest.mark.long  # the simulator tells this story in every run
def test_a_transaction_that_can_not_end_in_time_is_followed_by_smaller_ones(
    clusters: Clusters, topic: str, start: Start, thin: object
) -> None:
    """All records that wait would make a transaction of several times its timeout, which would
    fail again and again. The copy gets on all the same, exact.
    """
    clusters.source.create(topic, 1)
    numbers = range(4000)
    clusters.source.write(topic, [(0, make_record(number, SIZE)) for number in numbers])
    before = start(topic, "deduplicator", client_id=topic)
    wait_for_frontiers(before, 1)
    before.stop()
    write_intermediate(
        clusters,
        topic,
        topic,
        wrap_records(
            clusters, topic, [(0, number, make_record(number, SIZE)) for number in numbers]
        ),
    )
    service = start(
        topic, "deduplicator", client_id=topic, deduplicator_transaction_timeout_ms="10000"
    )
    clusters.wait_for_copy(topic, len(numbers))
    until(
        lambda: service.metric("reo_transactions_total", outcome="committed") >= 2,
        "no transaction had room for all: the quota lets 2 MB through in time",
    )
    service.stop()


@pytest.mark.long
def test_a_start_waits_for_its_quota_on_creating_topics(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """The broker reads no more requests for longer than a start waits for a cluster: the start says
    that, and goes on after it (KIP-599).
    """
    partitions, rate = 80, 5
    clusters.source.create(topic, partitions)
    with quotas(clusters.destination.address) as limit:
        limit(f"{topic}-admin", "controller_mutation_rate", rate)
        service = start(topic, "deduplicator", client_id=topic, connect_timeout_s="3")
        service.wait_for_log("throttles this client for")
        until(lambda: service.http_get("/readyz")[0] == 200, "the service is ready", COPY_S)
    assert clusters.destination.partitions(topic) == partitions
    assert not service.errors
    service.stop()
