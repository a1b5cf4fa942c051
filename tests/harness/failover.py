"""A copy from identical sources: begun with all of them, and which of them it is made from."""

from __future__ import annotations

from collections.abc import Iterable

from tests.conftest import Start
from tests.harness.copy_judge import Partitions
from tests.harness.filter_functions import number, passing
from tests.harness.identical_sources import (
    PATIENT,
    QUICK_FAILOVER,
    Candidates,
    create_identical_topics,
    join_addresses,
    recreate_topic,
)
from tests.harness.kafka import Cluster, Clusters, until
from tests.harness.merged_topics import build_topics_environment
from tests.harness.service import Service

FILTERS = {
    "filter_sql": "substring(cast(value as string), 10, 1) != '5'",
    "filter_function": "tests.harness.filter_functions:no_thirds",
}


def start_with_candidates(
    start: Start, topic: str, sources: Iterable[Cluster], *arguments: str, **more: str
) -> Service:
    """A service with these candidates, which is quick to leave one."""
    more = QUICK_FAILOVER | {"source_bootstrap_servers": join_addresses(sources)} | more
    return start(topic, *arguments, **more)


def wait_for_exact_copy(source: Cluster, destination: Cluster, topic: str, records: int) -> None:
    """Wait until the copy has what this candidate has, which is so many plain records and 10 of a
    transaction.
    """
    Clusters(source, destination).wait_for_copy(topic, records + 10)


def assert_switches(service: Service, candidates: Candidates, expected: list[int]) -> None:
    """How often the service says that it went over to each of them."""
    found = [
        service.metric("reo_source_switches_total", candidate=candidate.address)
        for candidate in candidates
    ]
    assert found == expected, service.read_log_tail()


def copy_from_first(
    clusters: Clusters, candidates: Candidates, topic: str, start: Start, **more: str
) -> Service:
    """Identical topics, and a service that copies the first candidate's. When that one answers too
    late, another one is taken: then it is tried again.
    """
    create_identical_topics(candidates, topic)
    for _ in range(3):
        service = start_with_candidates(start, topic, candidates, **more)
        wait_for_exact_copy(candidates[0], clusters.destination, topic, 1000)
        planned = until(lambda: find_planned(service, candidates), "a run is planned")  # noqa: B023
        if planned == [candidates[0]]:
            return service
        service.stop()
    raise AssertionError(f"the first candidate is not copied from:\n{service.read_log_tail()}")


def come_back_recreated(service: Service, candidate: Cluster, topic: str, numbers: range) -> None:
    """A candidate that was killed comes back with another topic of the same name. Stage one stands
    still meanwhile, or it could plan a run with the first one.
    """
    service.signal("replicator", "SIGSTOP")
    candidate.broker.start().wait()
    recreate_topic(candidate, topic, numbers)
    service.signal("replicator", "SIGCONT")


def find_planned(service: Service, candidates: Candidates) -> list[Cluster]:
    """The candidates from which the service has planned a run."""
    return [
        candidate
        for candidate in candidates
        if service.metric("reo_source_connections_total", candidate=candidate.address)
    ]


def start_with_filters(
    start: Start, clusters: Clusters, topic: str, sources: Iterable[Cluster]
) -> Service:
    """A service that ends when all is copied, with filters, and with a mapping to one partition."""
    environment = build_topics_environment(
        clusters, f"reo-{topic}", f"{topic}={topic}:1", **FILTERS, **QUICK_FAILOVER | PATIENT
    )
    return start(
        topic,
        "--stop-at-end",
        environment=environment | {"REO_SOURCE_BOOTSTRAP_SERVERS": join_addresses(sources)},
    )


def select_passing(source: Partitions) -> Partitions:
    """What passes both of them."""
    return {
        partition: [record for record in passing(records) if number(record.value) % 10 != 5]
        for partition, records in source.items()
    }
